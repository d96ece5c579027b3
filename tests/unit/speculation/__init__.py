"""The pure parts of speculation."""
