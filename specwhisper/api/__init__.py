"""The Python API of one process: ``SpeculativeWhisper`` and what its calls take and return."""
