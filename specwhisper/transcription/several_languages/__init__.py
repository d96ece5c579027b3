"""Recordings in which the language changes."""
