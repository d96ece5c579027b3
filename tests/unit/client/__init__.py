"""Parts of the client and of evaluation."""
