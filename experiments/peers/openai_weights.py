"""A transformers checkpoint as openai/whisper loads it: dimensions and a state dict with its own names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import WhisperConfig, WhisperForConditionalGeneration

# Their names, in the order in which they have to be replaced.
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


def save_openai(folder: str, path: Path) -> Path:
    """Convert a checkpoint folder to a file for ``whisper.load_model``."""
    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    torch.save({"dims": dimensions(model.config), "model_state_dict": openai_state(model.state_dict())}, path)
    return path


def openai_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename weights; the projection is left out, since openai's model reuses the embedding."""
    return {openai_name(name): tensor for name, tensor in state.items() if name != "proj_out.weight"}


def openai_name(name: str) -> str:
    """Say what openai's model calls a weight."""
    for theirs, ours in NAMES:
        name = re.sub(theirs, ours, name)
    return name


def dimensions(config: WhisperConfig) -> dict[str, Any]:
    """Return the sizes as openai's model names them."""
    return {
        "n_mels": config.num_mel_bins,
        "n_audio_ctx": config.max_source_positions,
        "n_audio_state": config.d_model,
        "n_audio_head": config.encoder_attention_heads,
        "n_audio_layer": config.encoder_layers,
        "n_vocab": config.vocab_size,
        "n_text_ctx": config.max_target_positions,
        "n_text_state": config.d_model,
        "n_text_head": config.decoder_attention_heads,
        "n_text_layer": config.decoder_layers,
    }
