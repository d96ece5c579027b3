"""gRPC of both ends: servers, channels, encryption, tokens, limits, statuses."""

import os

# gRPC reads it once, when it is imported. Its own lines would stand before our sentence about the same error.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
