"""Promises of servers in time and memory: cancels, floods, slow readers, bombs, stops and faults."""
