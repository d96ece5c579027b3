"""Measure what a draft server on CPUs needs, and how many live sessions a core serves."""
