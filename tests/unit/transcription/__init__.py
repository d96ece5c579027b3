"""Windows, text and times, without a model."""
