"""All servers: access, limits, signals, metrics."""
