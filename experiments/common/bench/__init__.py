"""Command-line options, statistics and the report that every experiment has."""
