"""A checkpoint on ONNX Runtime: its encoder and its slots."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from specwhisper.model.backend import Encoder, Features
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.onnx.decoder import SlotDecoder
from specwhisper.model.onnx.support import log_untried
from specwhisper.model.threads import num_threads


class OnnxBackend:
    """A :class:`specwhisper.model.backend.Backend`: an encoder, and slots.

    Parameters
    ----------
    encoder : of the checkpoint, maybe shared with another model.
    """

    max_windows = 1  # threads of the runtime encode a window together
    device = None

    def __init__(self, checkpoint: Checkpoint, num_slots: int, *, encoder: Encoder) -> None:
        log_untried()
        self.num_slots = num_slots
        self._encoder = encoder
        self._decoder = SlotDecoder(
            checkpoint.sizes,
            checkpoint.weights,
            num_slots,
            is_int8=checkpoint.dtype == "int8",
            num_threads=num_threads(),
            queried_layers={layer for layer, _ in checkpoint.alignment_heads},
        )

    @property
    def bytes_per_slot(self) -> int:
        """Memory of one slot."""
        return self._decoder.bytes_per_slot

    def warm_up(self) -> None:
        """Do nothing: no shape needs preparation."""

    def inference(self) -> AbstractContextManager[object]:
        """Return a context that does nothing."""
        return nullcontext()

    def encode(self, windows: Sequence[tuple[int, Features]]) -> None:
        """Encode windows, each into its slot, which is emptied."""
        for slot, features in windows:
            (encoded,) = self._encoder([features])
            self._decoder.prefill_audio(slot, encoded)

    def append(
        self,
        slots: Sequence[int],
        tokens: Sequence[Sequence[int]],
        num_scored: Sequence[int],
        probes: Sequence[tuple[int, int]] = (),
    ) -> NDArray[np.float32]:
        """Append rows of tokens; return logits after the last ones of each."""
        return self._decoder.append(slots, tokens, num_scored, probes)

    def cross_attention(
        self, slot: int, tokens: Sequence[int], heads: Sequence[tuple[int, int]]
    ) -> NDArray[np.float32]:
        """Run tokens through an emptied slot; return cross-attention weights of heads."""
        return self._decoder.cross_attention(slot, tokens, heads)

    def rollback(self, slot: int, length: int) -> None:
        """Remove all but the first ``length`` tokens of a slot."""
        self._decoder.rollback(slot, length)

    def length(self, slot: int) -> int:
        """Return the number of tokens in a slot."""
        return self._decoder.lengths[slot]
