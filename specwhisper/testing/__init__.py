"""Faults that tests inject into servers; loaded only if SPECWHISPER_FAILPOINTS is set."""
