"""``specwhisper top``: what the servers of a cluster do just now, read from their metrics."""
