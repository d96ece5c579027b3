"""A transformers checkpoint as whisper.cpp loads it: its file of ggml tensors, in float16 or in q8_0.

It has no float32: its convolutions abort with it.

The format is that of whisper.cpp's ``models/convert-h5-to-ggml.py`` and ``examples/quantize``.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from transformers import WhisperConfig

from experiments.peers.openai_weights import dimensions, openai_name
from specwhisper.audio.mel import mel_filters
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.weights import PROJECTION

MAGIC = 0x67676D6C
HPARAMS = (
    *("n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer"),
    *("n_text_ctx", "n_text_state", "n_text_head", "n_text_layer", "n_mels"),
)
FLOAT32, FLOAT16, Q8_0 = 0, 1, 8  # ggml's types of tensors
FLOAT16_FILE, Q8_0_FILE = 1, 2_007  # of files; the latter is mostly q8_0, second version
BLOCK = 32  # numbers that share a scale


def save_ggml(folder: str, path: Path, *, is_int8: bool) -> Path:
    """Convert a checkpoint folder to a file for whisper.cpp."""
    checkpoint = load_checkpoint(folder)
    sizes = dimensions(WhisperConfig.from_pretrained(folder))
    filters = np.ascontiguousarray(mel_filters(sizes["n_mels"]).T, np.float32)
    vocabulary = checkpoint.vocabulary
    tokens = [vocabulary.token_bytes([token]) for token in range(vocabulary.end_of_text)]
    with path.open("wb") as file:
        write_ints(file, MAGIC, *(sizes[name] for name in HPARAMS), Q8_0_FILE if is_int8 else FLOAT16_FILE)
        write_ints(file, *filters.shape)
        file.write(filters.tobytes())
        write_ints(file, len(tokens))
        for token in tokens:
            write_ints(file, len(token))
            file.write(token)
        for name, weight in checkpoint.weights.items():
            if name != PROJECTION:
                write_tensor(file, openai_name(name), weight, is_int8=is_int8)
    return path


def write_tensor(file: BinaryIO, name: str, weight: NDArray[np.float32], *, is_int8: bool) -> None:
    """Write a tensor in the type that whisper.cpp's own converters choose for its name and shape."""
    if name.startswith("encoder.conv") and weight.ndim == 1:
        weight = weight[:, None]  # as a matrix, in float32 like other biases
        type_, data = FLOAT32, weight.tobytes()
    elif weight.ndim == 1 or "positional" in name:
        type_, data = FLOAT32, weight.tobytes()
    elif is_int8 and weight.ndim == 2:
        type_, data = Q8_0, round_to_blocks(weight)
    else:
        type_, data = FLOAT16, weight.astype(np.float16).tobytes()
    encoded = name.encode()
    write_ints(file, weight.ndim, len(encoded), type_, *reversed(weight.shape))
    file.write(encoded)
    file.write(data)


def round_to_blocks(weight: NDArray[np.float32]) -> bytes:
    """Return blocks of a float16 scale and 32 bytes each."""
    blocks = weight.reshape(-1, BLOCK)
    scales = np.abs(blocks).max(axis=1, keepdims=True) / 127
    found = np.zeros(len(blocks), [("scale", "<f2"), ("bytes", "i1", BLOCK)])
    found["scale"] = scales[:, 0]
    found["bytes"] = np.rint(np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales > 0))
    return found.tobytes()


def write_ints(file: BinaryIO, *values: int) -> None:
    """Write 32-bit integers."""
    file.write(struct.pack(f"<{len(values)}i", *values))
