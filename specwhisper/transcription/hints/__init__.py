"""Texts that the audio is believed to say: files, the way to servers, tokens."""
