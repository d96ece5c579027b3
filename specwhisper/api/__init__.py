"""The Python API of one process: ``SpeculativeWhisper``."""
