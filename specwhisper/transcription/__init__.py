"""What to decode and what it means: windows, segments and transcripts as pure state machines."""
