"""Whisper transcription by speculative decoding, split between a draft and a target server."""

__version__ = "0.1.0"
