"""Subcommands besides ``sweep`` and ``plot``."""
