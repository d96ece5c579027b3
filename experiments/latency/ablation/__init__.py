"""Each mechanism switched off, alone: what it gains, and where."""
