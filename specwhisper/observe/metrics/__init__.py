"""What servers count, for Prometheus; each has a registry of its own, so several fit into a process."""
