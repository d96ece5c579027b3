"""One client's transcription, recorded or live, on one target after another."""
