"""Processes that stop, fail or are killed."""
