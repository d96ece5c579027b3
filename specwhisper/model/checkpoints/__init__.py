"""Read checkpoints: names, files, sizes, weights, tokens and generation settings."""
