"""Benchmarks and studies: what the project claims in numbers, each with the command that measured it."""
