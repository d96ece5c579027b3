"""Start server processes, find them, and read what they use."""
