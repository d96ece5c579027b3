"""The command ``specwhisper``."""
