"""Hints: files, the way to servers."""
