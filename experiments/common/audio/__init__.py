"""Recordings that experiments transcribe, and files of silence."""
