"""Make PyTorch's parts of a checkpoint: its encoder, and its decoder's weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from specwhisper.errors import UnsupportedOption
from specwhisper.model.checkpoint import Checkpoint
from specwhisper.model.compat import HAS_INT8_SUMS
from specwhisper.model.kernels.linear import pack_linears
from specwhisper.model.weights import EMBEDDING, PROJECTION

ENCODER, DECODER = "model.encoder.", "model.decoder."


def load_encoder(checkpoint: Checkpoint, device: str | torch.device = "cpu") -> nn.Module:
    """Load transformers' encoder onto a device, in the checkpoint's dtype.

    Raises
    ------
    UnsupportedOption
        for a dtype that the device does not have.
    """
    is_int8 = checkpoint.dtype == "int8"
    if is_int8 and torch.device(device).type != "cpu":
        raise UnsupportedOption(f"int8 weights are for CPUs: choose float16 or bfloat16 on '{device}'.")
    if is_int8 and not HAS_INT8_SUMS:
        raise UnsupportedOption("int8 weights need a processor with VNNI: choose float32 on this one.")
    values: dict[str, Any] = asdict(checkpoint.sizes) | {"attn_implementation": "sdpa"}
    config = WhisperConfig(**values)
    with torch.device("meta"):
        encoder = WhisperEncoder(config)
    names = [name for name in checkpoint.weights if name.startswith(ENCODER)]
    state = {name.removeprefix(ENCODER): read_tensor(checkpoint, name).to(device) for name in names}
    encoder.load_state_dict(state, assign=True)
    encoder.eval().requires_grad_(False)
    if is_int8:
        pack_linears(encoder, is_int8=True)
    return encoder


def read_tensor(checkpoint: Checkpoint, name: str) -> Tensor:
    """Read a weight in the checkpoint's dtype; float32 where that is int8."""
    stored = checkpoint.weights.stored(name)
    if stored.dtype == np.uint16:
        tensor = torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(stored)
    return tensor.to(torch.float32 if checkpoint.dtype == "int8" else getattr(torch, checkpoint.dtype))


class DecoderWeights(Mapping[str, Tensor]):
    """The decoder's weights by transformers' names, each read when asked for.

    The projection to logits is among them.

    Parameters
    ----------
    ids : the checkpoint's id of each token of another vocabulary, ``None`` for those that it lacks; rows of
        the embedding are in its order.

    Attributes
    ----------
    is_tied : whether embedding and projection are equal.
    """

    def __init__(self, checkpoint: Checkpoint, ids: Sequence[int | None] | None = None) -> None:
        self.is_tied = checkpoint.weights.is_same(EMBEDDING, PROJECTION)
        self._checkpoint = checkpoint
        self._rows = None if ids is None else torch.tensor([0 if i is None else i for i in ids])

    def __getitem__(self, name: str) -> Tensor:
        if name == EMBEDDING or (name == PROJECTION and self.is_tied):
            return self._embedding
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._checkpoint.weights if name == PROJECTION or name.startswith(DECODER))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @cached_property
    def _embedding(self) -> Tensor:
        return self._read(EMBEDDING)

    def _read(self, name: str) -> Tensor:
        tensor = read_tensor(self._checkpoint, name)
        return tensor if self._rows is None or name not in (EMBEDDING, PROJECTION) else tensor[self._rows]
