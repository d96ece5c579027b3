"""Prometheus metrics of the servers.

Each server has its own registry, so several fit into a process.
"""
