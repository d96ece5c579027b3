"""Text pairs: draft length against top-k."""
