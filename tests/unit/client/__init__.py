"""Parts of the client."""
