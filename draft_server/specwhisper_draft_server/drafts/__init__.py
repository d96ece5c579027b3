"""The draft model: its placement, its thread, and one stream a session."""
