"""HTTP and WebSocket connections: limits, deadlines, encryption, access."""
