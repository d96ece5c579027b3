"""Parts of the draft server."""
