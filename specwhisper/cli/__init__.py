"""Flags and command lines that every program shares."""
