"""Translate OpenAI's names of weights and sizes into transformers'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = {
    "blocks": "layers",
    "attn": "self_attn",
    "attn_ln": "self_attn_layer_norm",
    "cross_attn": "encoder_attn",
    "cross_attn_ln": "encoder_attn_layer_norm",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "out": "out_proj",
    "mlp_ln": "final_layer_norm",
    "ln": "layer_norm",
    "ln_post": "layer_norm",
    "token_embedding": "embed_tokens",
    "positional_embedding": "embed_positions.weight",
}
SIZES = {
    "n_vocab": "vocab_size",
    "n_audio_ctx": "max_source_positions",
    "n_audio_state": "d_model",
    "n_audio_head": "encoder_attention_heads",
    "n_audio_layer": "encoder_layers",
    "n_text_ctx": "max_target_positions",
    "n_text_head": "decoder_attention_heads",
    "n_text_layer": "decoder_layers",
    "n_mels": "num_mel_bins",
}
FFN_FACTOR = 4  # width of the feed-forward layers over that of the model


def transformers_name(name: str) -> str:
    """Return transformers' name of a weight."""
    parts = name.replace(".mlp.0.", ".fc1.").replace(".mlp.2.", ".fc2.").split(".")
    return ".".join(["model", *(NAMES.get(part, part) for part in parts)])


def config_of(dimensions: Mapping[str, Any], num_weights: int) -> dict[str, int]:
    """Return sizes as a config.json has them.

    Parameters
    ----------
    num_weights : in the model's files; it has more of them than layers.

    Raises
    ------
    ValueError : for sizes that no such model has.
    """
    for name in (*SIZES, "n_text_state"):
        if not isinstance(dimensions.get(name), int):
            raise ValueError(f"it has no number as {name}")
    config = {theirs: dimensions[name] for name, theirs in SIZES.items()}
    if dimensions["n_text_state"] != config["d_model"]:
        raise ValueError("its encoder and its decoder differ in width")
    if (layers := max(config["encoder_layers"], config["decoder_layers"])) > num_weights:
        raise ValueError(f"it has fewer weights ({num_weights}) than layers ({layers})")
    return config | dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), FFN_FACTOR * config["d_model"])
