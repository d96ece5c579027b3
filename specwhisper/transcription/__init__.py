"""Windows, segments and transcripts: pure state machines without a model."""
