"""Models on this machine: those that are here, and fetching others."""
