"""The round trip: what it costs, and which draft length, depth and mode hide it."""
