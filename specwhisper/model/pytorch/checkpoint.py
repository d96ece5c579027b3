"""Make PyTorch's parts of a checkpoint: its encoder, and its decoder's weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import WhisperConfig
from transformers.activations import ACT2FN
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from specwhisper.errors import CheckpointError
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.checkpoints.weights import EMBEDDING, ENCODER, PROJECTION

TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")


def empty_encoder(checkpoint: Checkpoint) -> WhisperEncoder:
    """Make transformers' encoder without weights."""
    if (activation := checkpoint.sizes.activation_function) not in ACT2FN:
        raise CheckpointError(
            f"The config.json of model '{checkpoint.name}' has activation_function={activation!r}, which "
            f"transformers does not have: fetch or save it again."
        )
    # transformers warns of special tokens that a small vocabulary lacks; an encoder has no use for any.
    values: dict[str, Any] = asdict(checkpoint.sizes) | dict.fromkeys(TOKEN_IDS, 0)
    config = WhisperConfig(**values | {"attn_implementation": "sdpa"})
    with torch.device("meta"):
        encoder: WhisperEncoder = WhisperEncoder(config).eval().requires_grad_(False)
    return encoder


def load_encoder(checkpoint: Checkpoint, device: str | torch.device = "cpu") -> WhisperEncoder:
    encoder = empty_encoder(checkpoint)
    encoder.load_state_dict({name: w.to(device) for name, w in encoder_weights(checkpoint)}, assign=True)
    return encoder.requires_grad_(False)


def encoder_weights(checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    """Yield the encoder's weights by name, each read when its turn comes."""
    for name in checkpoint.weights.of_encoder():
        yield name.removeprefix(f"{ENCODER}."), read_tensor(checkpoint, name)


def read_tensor(checkpoint: Checkpoint, name: str) -> Tensor:
    stored = checkpoint.weights.stored(name)
    if stored.dtype == np.uint16:
        tensor = torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(stored)
    return tensor.to(getattr(torch, checkpoint.dtype))


class DecoderWeights(Mapping[str, Tensor]):
    """The decoder's weights by transformers' names, each read when asked for.

    The projection to logits is among them.

    ``is_tied``: whether embedding and projection are equal.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.is_tied = checkpoint.weights.is_same(EMBEDDING, PROJECTION)
        self._checkpoint = checkpoint

    def __getitem__(self, name: str) -> Tensor:
        if name == EMBEDDING or (name == PROJECTION and self.is_tied):
            return self._embedding
        return read_tensor(self._checkpoint, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._checkpoint.weights.of_decoder())

    def __len__(self) -> int:
        return len(self._checkpoint.weights.of_decoder())

    @cached_property
    def _embedding(self) -> Tensor:
        return read_tensor(self._checkpoint, EMBEDDING)
