"""A checkpoint in the formats of other programs: CTranslate2, openai/whisper, whisper.cpp."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import WhisperConfig

from specwhisper.audio.mel import mel_filters
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.checkpoints.sizes import ModelSizes
from specwhisper.model.checkpoints.weights import PROJECTION
from specwhisper.model.pytorch.placement import read_tensor

# openai's names, in the order in which transformers' have to be replaced.
NAMES = (
    (r"^model\.", ""),
    (r"\.layers\.(\d+)\.", r".blocks.\1."),
    (r"\.self_attn_layer_norm\.", ".attn_ln."),
    (r"\.encoder_attn_layer_norm\.", ".cross_attn_ln."),
    (r"\.final_layer_norm\.", ".mlp_ln."),
    (r"\.self_attn\.", ".attn."),
    (r"\.encoder_attn\.", ".cross_attn."),
    (r"\.q_proj\.", ".query."),
    (r"\.k_proj\.", ".key."),
    (r"\.v_proj\.", ".value."),
    (r"\.out_proj\.", ".out."),
    (r"\.fc1\.", ".mlp.0."),
    (r"\.fc2\.", ".mlp.2."),
    (r"^encoder\.layer_norm\.", "encoder.ln_post."),
    (r"^decoder\.layer_norm\.", "decoder.ln."),
    (r"\.embed_tokens\.weight$", ".token_embedding.weight"),
    (r"\.embed_positions\.weight$", ".positional_embedding"),
)
GGML_MAGIC = 0x67676D6C
FLOAT32, FLOAT16, Q8_0 = 0, 1, 8  # ggml's types of tensors
FLOAT16_FILE, Q8_0_FILE = 1, 2_007  # types of files; the latter is mostly q8_0, second version
BLOCK = 32  # numbers of q8_0 that share a scale


def save_ctranslate2(folder: str, path: Path) -> Path:
    from ctranslate2.converters import TransformersConverter

    files = ["tokenizer.json", "preprocessor_config.json"]
    TransformersConverter(folder, copy_files=files).convert(str(path))
    return path


def save_openai(name: str, path: Path) -> Path:
    checkpoint = load_checkpoint(name)
    weights = {name: read_tensor(checkpoint, name).float() for name in checkpoint.weights}
    torch.save({"dims": dimensions(checkpoint.sizes), "model_state_dict": openai_state(weights)}, path)
    return path


def openai_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename weights; the projection is left out, since openai's model reuses the embedding."""
    return {openai_name(name): tensor for name, tensor in state.items() if name != PROJECTION}


def openai_name(name: str) -> str:
    for theirs, ours in NAMES:
        name = re.sub(theirs, ours, name)
    return name


def dimensions(config: ModelSizes | WhisperConfig) -> dict[str, int]:
    """Return the sizes as openai's model names them, in the order of whisper.cpp's file."""
    return {
        "n_vocab": config.vocab_size,
        "n_audio_ctx": config.max_source_positions,
        "n_audio_state": config.d_model,
        "n_audio_head": config.encoder_attention_heads,
        "n_audio_layer": config.encoder_layers,
        "n_text_ctx": config.max_target_positions,
        "n_text_state": config.d_model,
        "n_text_head": config.decoder_attention_heads,
        "n_text_layer": config.decoder_layers,
        "n_mels": config.num_mel_bins,
    }


def save_ggml(name: str, path: Path, *, is_int8: bool) -> Path:
    """Convert a checkpoint to a file for whisper.cpp, in float16 or in q8_0.

    It has no float32: its convolutions abort with it. The format is that of its
    ``models/convert-h5-to-ggml.py`` and ``examples/quantize``.
    """
    checkpoint = load_checkpoint(name)
    sizes = dimensions(checkpoint.sizes)
    filters = np.ascontiguousarray(mel_filters(sizes["n_mels"]).T, np.float32)
    vocabulary = checkpoint.vocabulary
    tokens = [vocabulary.token_bytes([token]) for token in range(vocabulary.end_of_text)]
    with path.open("wb") as file:
        _write_ints(file, GGML_MAGIC, *sizes.values(), Q8_0_FILE if is_int8 else FLOAT16_FILE)
        _write_ints(file, *filters.shape)
        file.write(filters.tobytes())
        _write_ints(file, len(tokens))
        for token in tokens:
            _write_ints(file, len(token))
            file.write(token)
        for name, weight in checkpoint.weights.items():
            if name != PROJECTION:
                _write_tensor(file, openai_name(name), weight.astype(np.float32), is_int8=is_int8)
    return path


def _write_tensor(file: BinaryIO, name: str, weight: NDArray[np.float32], *, is_int8: bool) -> None:
    """Write a tensor in the type that whisper.cpp's own converters choose for its name and shape."""
    if name.startswith("encoder.conv") and weight.ndim == 1:
        weight = weight[:, None]  # as a matrix, in float32 like other biases
        type_, data = FLOAT32, weight.tobytes()
    elif weight.ndim == 1 or "positional" in name:
        type_, data = FLOAT32, weight.tobytes()
    elif is_int8 and weight.ndim == 2:
        type_, data = Q8_0, _rounded(weight)
    else:
        type_, data = FLOAT16, weight.astype(np.float16).tobytes()
    encoded = name.encode()
    _write_ints(file, weight.ndim, len(encoded), type_, *reversed(weight.shape))
    file.write(encoded)
    file.write(data)


def _rounded(weight: NDArray[np.float32]) -> bytes:
    blocks = weight.reshape(-1, BLOCK)
    scales = np.abs(blocks).max(axis=1, keepdims=True) / 127
    found = np.zeros(len(blocks), [("scale", "<f2"), ("bytes", "i1", BLOCK)])
    found["scale"] = scales[:, 0]
    found["bytes"] = np.rint(np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales > 0))
    return found.tobytes()


def _write_ints(file: BinaryIO, *values: int) -> None:
    file.write(struct.pack(f"<{len(values)}i", *values))
