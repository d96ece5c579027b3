"""Measure cells of mode, draft length and round trip with real processes, and store the runs."""
