"""Live transcription in real time: latency, stability and cost of its text."""
