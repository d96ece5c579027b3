"""What every experiment shares: command line, samples, pinned processes, statistics and the report."""
