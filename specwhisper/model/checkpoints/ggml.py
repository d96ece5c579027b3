"""Read files of whisper.cpp: sizes, tokens and tensors one after the other.

Quantised tensors are multiplied out when they are read: they are other weights than those they were made of,
and so another target.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specwhisper.model.checkpoints.generation import Generation
from specwhisper.model.checkpoints.published import generation_of, special_tokens
from specwhisper.model.checkpoints.sizes import ModelSizes, read_sizes
from specwhisper.model.checkpoints.tokenizer import Tokenizer, tokenizer_of
from specwhisper.model.checkpoints.weights import StoredArray, Weights, WeightsFile

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
    parts = name.replace(".mlp.0.", ".fc1.").replace(".mlp.2.", ".fc2.").split(".")
    return ".".join(["model", *(NAMES.get(part, part) for part in parts)])


def config_of(dimensions: Mapping[str, Any], num_weights: int) -> dict[str, int]:
    """Return sizes as a config.json has them.

    ``num_weights``: in the model's files; it has more of them than layers.
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


MAGIC_BYTES = 4
DIMENSIONS = (
    *("n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer"),
    *("n_text_ctx", "n_text_state", "n_text_head", "n_text_layer", "n_mels", "ftype"),
)
MAX_RANK = 4
FLOATS: dict[int, np.dtype[Any]] = {0: np.dtype("<f4"), 1: np.dtype("<f2")}
BLOCK = 32  # numbers that share a scale
HALVES = ("low", "u1", BLOCK // 2)  # four bits each: first the numbers of the lower halves
# Types of blocks by ggml's numbers.
BLOCKS: dict[int, np.dtype[Any]] = {
    2: np.dtype([("scale", "<f2"), HALVES]),  # q4_0
    3: np.dtype([("scale", "<f2"), ("minimum", "<f2"), HALVES]),  # q4_1
    6: np.dtype([("scale", "<f2"), ("fifth_bits", "<u4"), HALVES]),  # q5_0
    7: np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("fifth_bits", "<u4"), HALVES]),  # q5_1
    8: np.dtype([("scale", "<f2"), ("bytes", "i1", BLOCK)]),  # q8_0
}


class GgmlModel:
    """A file of whisper.cpp."""

    def __init__(self, name: str, path: Path) -> None:
        file = WeightsFile(path)
        file.skip(MAGIC_BYTES)
        self._name = name
        self._path = path
        self._dimensions = {dimension: file.number("i") for dimension in DIMENSIONS}
        file.skip(4 * file.number() * file.number())  # mel filters
        self._tokens = [file.take(file.number()) for _ in range(file.number())]
        tensors = list(_tensors(file))
        self._tensors = {name: stored for name, stored, _ in tensors}
        self.is_quantised = any(is_quantised for *_, is_quantised in tensors)

    @cached_property
    def sizes(self) -> ModelSizes:
        return read_sizes(self._name, config_of(self._dimensions, len(self._tensors)), source="header")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the file's text tokens; it holds no special ones."""
        special = special_tokens(self._dimensions["n_vocab"])
        num_text_tokens = self._dimensions["n_vocab"] - len(special)
        if len(self._tokens) < num_text_tokens:
            raise ValueError(f"{self._path.name} has {len(self._tokens)} of {num_text_tokens} text tokens")
        return tokenizer_of(self._tokens[:num_text_tokens], special)

    @property
    def generation(self) -> Generation:
        return generation_of(self._name, self.sizes, self.tokenizer)

    def weights(self) -> tuple[Weights, list[Path]]:
        tensors = {transformers_name(name): tensor for name, tensor in self._tensors.items()}
        return Weights(tensors), [self._path]


def _tensors(file: WeightsFile) -> Iterator[tuple[str, StoredArray, bool]]:
    """Yield the name of each tensor, the tensor, and whether it is quantised, to the end of the file."""
    types = {**FLOATS, **BLOCKS}
    while not file.is_at_end:
        rank, name_bytes, type_ = file.number(), file.number(), file.number()
        if rank > MAX_RANK:
            raise ValueError(f"{file.path.name} is damaged: a tensor has {rank} axes")
        shape = tuple(file.number() for _ in range(rank))[::-1]
        name = file.take(name_bytes).decode()
        if type_ not in types:
            raise ValueError(
                f"'{name}' has ggml's type {type_}: choose a file in f32, f16, q8_0, q5_0, q5_1, q4_0 or q4_1"
            )
        if type_ in BLOCKS and (not shape or shape[-1] % BLOCK):
            raise ValueError(f"{file.path.name} is damaged: rows of '{name}' are not in blocks of {BLOCK}")
        if name.endswith(".bias"):
            shape = (math.prod(shape),)  # those of convolutions have two axes
        is_quantised, number_type = type_ in BLOCKS, types[type_]
        num_bytes = math.prod(shape) // (BLOCK if is_quantised else 1) * number_type.itemsize
        read = partial(_numbers, file, file.skip(num_bytes), num_bytes, number_type, shape)
        yield name, StoredArray(shape, read), is_quantised


def _numbers(
    file: WeightsFile, start: int, num_bytes: int, number_type: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    numbers = file.read(start, num_bytes).view(number_type)
    return (_multiplied_out(numbers) if number_type.names else numbers).reshape(shape)


def _multiplied_out(blocks: NDArray[Any]) -> NDArray[np.float32]:
    """Return the numbers of blocks: integers times a scale, and plus a minimum if there is one."""
    fields = blocks.dtype.names or ()
    if "bytes" in fields:
        integers = blocks["bytes"].astype(np.float32)
    else:
        halves = blocks["low"]
        integers = np.concatenate([halves & 15, halves >> 4], axis=1).astype(np.float32)
        if "fifth_bits" in fields:
            integers += 16 * (blocks["fifth_bits"][:, None] >> np.arange(BLOCK, dtype=np.uint32) & 1)
        if "minimum" not in fields:
            integers -= 16 if "fifth_bits" in fields else 8
    integers *= blocks["scale"][:, None].astype(np.float32)
    if "minimum" in fields:
        integers += blocks["minimum"][:, None].astype(np.float32)
    return integers
