"""The engines of draft and target in one process."""
