"""Parts of the gateway."""
