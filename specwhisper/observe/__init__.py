"""Logs, metrics, traces and request ids; failpoints for tests."""
