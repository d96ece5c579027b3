"""Prometheus metrics of the servers; each server has its own registry, so several fit into a process."""
