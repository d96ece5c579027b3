"""Capacity of a target, a draft server and one process: sessions, passes, threads, batches, memory."""
