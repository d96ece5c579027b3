"""Compare checkpoints with random configs, flags and options with plain transformers."""
