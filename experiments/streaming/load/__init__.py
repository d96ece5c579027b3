"""Word error rate by load: equal concurrent live streams."""
