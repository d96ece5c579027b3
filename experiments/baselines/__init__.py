"""The first benchmark: time per token of plain transformers and of every mode of ours."""
