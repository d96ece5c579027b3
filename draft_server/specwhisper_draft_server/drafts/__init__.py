"""The draft model: placed for a vocabulary, run in its own thread, one stream a session."""
