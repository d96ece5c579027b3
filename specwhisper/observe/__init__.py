"""Logs, metrics, traces and request ids."""
