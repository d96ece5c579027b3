"""Realtime transcription as OpenAI's API has it: what clients may set and say, and what they are told."""
