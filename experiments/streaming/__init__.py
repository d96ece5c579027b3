"""Live transcription of human speech in real time: how soon text comes, how often it changes, its cost."""
