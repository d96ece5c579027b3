"""Forward passes of the decoder on CPUs and GPUs: layers, attention over slots, captured graphs."""
