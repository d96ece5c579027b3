"""Live transcription, paced in real time: how soon text comes, how often it changes, what it costs."""
