"""The algorithm of speculative decoding, pure: no model, no socket, no clock."""
