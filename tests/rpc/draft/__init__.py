"""The draft server."""
