"""A checkpoint on ONNX Runtime: its encoder and its slots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from specwhisper.model.backend import Encoder, Features
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.checkpoints.weights import EMBEDDING, PROJECTION
from specwhisper.model.onnx.decoder import SlotDecoder
from specwhisper.model.onnx.encoder import WindowEncoder
from specwhisper.model.threads import num_threads


class OnnxBackend(SlotDecoder):
    """A :class:`specwhisper.model.backend.Backend`: an encoder, and slots.

    Parameters
    ----------
    encoder : of the checkpoint, maybe shared with another model.
    ids : the checkpoint's id of each token of another vocabulary, ``None`` for those that it lacks.
    """

    max_windows = 1  # threads of the runtime encode a window together
    device = None

    def __init__(
        self, checkpoint: Checkpoint, num_slots: int, *, encoder: Encoder, ids: Sequence[int | None] | None
    ) -> None:
        weights: Mapping[str, NDArray[np.float32]] = checkpoint.weights
        sizes = checkpoint.sizes
        if ids is not None:
            weights, sizes = Reordered(weights, ids), replace(sizes, vocab_size=len(ids))
        is_int8 = checkpoint.dtype == "int8"
        super().__init__(
            sizes,
            weights,
            num_slots,
            is_int8=is_int8,
            num_threads=num_threads(),
            queried_layers={layer for layer, _ in checkpoint.alignment_heads},
        )
        self._encoder = encoder

    def inference(self) -> AbstractContextManager[object]:
        """Return a context that does nothing."""
        return nullcontext()

    def encode(self, windows: Sequence[tuple[int, Features]]) -> None:
        """Encode windows, each into its slot, which is emptied."""
        for slot, features in windows:
            (encoded,) = self._encoder([features])
            self.prefill_audio(slot, encoded)

    def length(self, slot: int) -> int:
        """Return the number of tokens in a slot."""
        return self.lengths[slot]

    def warm_up(self, width: int) -> None:
        """Do nothing: no shape needs preparation."""


class OnnxEncoder:
    """The encoder of a checkpoint; a :class:`specwhisper.model.backend.Encoder`."""

    max_windows = 1

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._encode = WindowEncoder(
            checkpoint.sizes,
            checkpoint.weights,
            is_int8=checkpoint.dtype == "int8",
            num_threads=num_threads(),
        )

    def __call__(self, windows: Sequence[Features]) -> Sequence[NDArray[np.float32]]:
        """Encode windows one after the other."""
        return [self._encode(features) for features in windows]


class Reordered(Mapping[str, NDArray[np.float32]]):
    """Weights with embedding and projection in another vocabulary's order."""

    def __init__(self, weights: Mapping[str, NDArray[np.float32]], ids: Sequence[int | None]) -> None:
        self._weights = weights
        self._rows = [0 if i is None else i for i in ids]

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        weight = self._weights[name]
        return weight[self._rows] if name in (EMBEDDING, PROJECTION) else weight

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)
