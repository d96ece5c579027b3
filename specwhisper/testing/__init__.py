"""Faults that tests inject into servers, if SPECWHISPER_FAILPOINTS is set."""
