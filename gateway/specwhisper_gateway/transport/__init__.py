"""HTTP and WebSocket connections: limits, deadlines, access."""
