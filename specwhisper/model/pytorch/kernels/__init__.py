"""The decoder's forward passes on CPUs and GPUs."""
