"""What all benchmarks share: load, processes, statistics, reports."""
