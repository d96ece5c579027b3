"""Protocols of an encoder, and of a decoder with slots, in one array library; an encoder of two models.

:mod:`specwhisper.model.onnx` serves CPUs with NumPy's arrays, :mod:`specwhisper.model.pytorch` GPUs, device
maps and other types of numbers with torch's tensors. A distilled draft keeps the encoder of its teacher: then
a window is encoded once.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specwhisper.model.arrays import Array, Device

Features = NDArray[np.float32]  # a window's: mel bins x frames


def wanted_tokens(
    tokens: Sequence[Sequence[int]], num_scored: Sequence[int], probes: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return the tokens whose logits :meth:`Backend.append` returns.

    Each is (row, index in the row).
    """
    scored = [
        (row, index)
        for row, (of_row, num) in enumerate(zip(tokens, num_scored, strict=True))
        for index in range(len(of_row) - num, len(of_row))
    ]
    return [*scored, *probes]


class Encoder(Protocol):
    """Encodes windows; safe in several threads.

    ``max_windows``: most windows that are encoded faster together, each by a thread.
    """

    max_windows: int

    def __call__(self, windows: Sequence[Features]) -> Sequence[Any]:
        """Encode windows, mel bins x frames each, to positions x d_model each."""


class Backend(Protocol):
    """The slots of a model.

    Attributes
    ----------
    max_windows : most windows that are encoded faster together, each by a thread.
    takes_short_windows : whether a window may be shorter than 30 s.
    device : where the logits are; ``None`` for NumPy's arrays.
    """

    max_windows: int
    takes_short_windows: bool
    device: Device

    @property
    def bytes_per_slot(self) -> int: ...

    def inference(self) -> AbstractContextManager[object]: ...

    def encode(self, windows: Sequence[tuple[int, Features]]) -> None: ...

    def append(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        num_scored: Sequence[int],
        probes: Sequence[tuple[int, int]] = (),
    ) -> Array:
        """Append rows of tokens; return logits after the last ``num_scored`` of each.

        Parameters
        ----------
        probes : further tokens whose logits are returned, at most one a row, as (row, index in the row).

        Returns
        -------
        float32 logits, sum(num_scored) + len(probes) x vocabulary, row after row, then the probes; the next
        call may overwrite them.
        """

    def cross_attention(self, slot: int, tokens: Sequence[int], heads: Sequence[tuple[int, int]]) -> Array:
        """Run tokens through an emptied slot; return cross-attention weights of heads.

        The slot is empty afterwards.

        Parameters
        ----------
        heads : (layer, head) of each.

        Returns
        -------
        float32 weights, heads x tokens x positions of the window, each row summing to 1.
        """

    def rollback(self, slot: int, length: int) -> None: ...

    def length(self, slot: int) -> int: ...

    def warm_up(self) -> None:
        """Prepare every shape that may occur."""


@dataclass(frozen=True, eq=False)
class SharedEncoder:
    """One model's access to the encoder that it shares with another; thread-safe.

    A model never receives its own encoding: sessions without a draft share nothing.
    """

    encoder: Encoder
    num_kept: int
    kept: OrderedDict[bytes, tuple[SharedEncoder, Any]]  # encodings for the other model, the oldest first
    lock: Lock  # draft and target may encode in different threads: the second waits

    max_windows = 1  # an encoding may be needed by another thread, or on another stream

    def __call__(self, windows: Sequence[Features]) -> Sequence[Any]:
        """Encode windows one by one, or return the other model's encodings."""
        return [self._encode(features) for features in windows]

    def _encode(self, features: Features) -> Any:
        key = hashlib.blake2b(features.tobytes()).digest()
        with self.lock:
            by, encoded = self.kept.get(key, (self, None))
            if by is not self:
                del self.kept[key]
                return encoded
            (encoded,) = self.encoder([features])
            self.kept[key] = (self, encoded)
            if len(self.kept) > self.num_kept:  # the other model did not need it, or not yet
                self.kept.popitem(last=False)
            return encoded


def share(encoder: Encoder, num_windows: int) -> tuple[SharedEncoder, SharedEncoder]:
    """Return two models' access to one encoder.

    ``num_windows``: most windows kept for the other model: one for each session that may be open.
    """
    shared = encoder, num_windows, OrderedDict[bytes, tuple[SharedEncoder, Any]](), Lock()
    return SharedEncoder(*shared), SharedEncoder(*shared)
