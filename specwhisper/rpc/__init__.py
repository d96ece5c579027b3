"""gRPC of both ends: servers, channels, encryption, tokens, limits, statuses."""
