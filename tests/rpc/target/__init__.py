"""The target server."""
