"""Trains the bundled demo models of specwhisper from scratch, on speech it synthesises itself."""
