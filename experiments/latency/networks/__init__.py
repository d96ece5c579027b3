"""Slow networks between two processes: kernel netem, an emulator of IP packets, a TCP proxy."""
