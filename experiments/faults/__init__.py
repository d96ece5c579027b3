"""Faults of servers, networks and callers: no text changes, no other client waits, and nothing leaks."""
