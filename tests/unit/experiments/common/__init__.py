"""Load, processes, statistics and reports, which all benchmarks share."""
