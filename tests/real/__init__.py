"""Real Whisper on human speech."""
