"""PyTorch's side of a Whisper model: modules made of a checkpoint."""
