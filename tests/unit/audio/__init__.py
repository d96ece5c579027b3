"""Audio: decoding, mel, voice activity."""
