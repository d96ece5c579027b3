"""The latency laboratory."""
