"""Speakers of recordings."""
