"""The models: checkpoints, decoding rules and the cached decoder."""
