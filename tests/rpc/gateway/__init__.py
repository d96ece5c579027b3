"""The gateway, with real servers after it."""
