"""Measure and predict what a round trip costs, by draft length and mode."""
