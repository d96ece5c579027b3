"""gRPC on both ends: servers, channels, encryption, tokens, limits and the status table."""
