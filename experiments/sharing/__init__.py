"""Cost of a distilled draft with and without a shared encoder."""
