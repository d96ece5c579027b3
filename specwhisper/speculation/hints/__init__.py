"""Hints: text that the audio is believed to say, and its place in the text."""
