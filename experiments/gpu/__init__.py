"""Measure the engine on a machine with a GPU, without a download."""
