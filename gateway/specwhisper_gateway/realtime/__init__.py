"""OpenAI's realtime API for transcription."""
