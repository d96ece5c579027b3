"""The messages on the wire, and their conversion."""
