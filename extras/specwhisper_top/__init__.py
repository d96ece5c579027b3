"""``specwhisper top``: the state of a cluster's servers, read from their metrics."""
