"""Slow networks between two processes: an emulator of IP packets, a TCP proxy."""
