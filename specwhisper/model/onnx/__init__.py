"""Whisper on ONNX Runtime: encoder and slots on a CPU, without PyTorch."""
