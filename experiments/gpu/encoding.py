"""Time to encode windows, one by one and in batches."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from experiments.gpu.clock import busy_s
from experiments.gpu.weights import Weights
from specwhisper.types import WINDOW_FRAMES

BATCHES = (1, 2, 4, 8)
QUICK = (1, 2)


@dataclass(frozen=True, slots=True)
class Encoding:
    """Median seconds per window to encode a batch and write it to slots."""

    shape: str
    dtype: str
    batch: int
    window_s: float


def measure_encoding(weights: Weights, batches: Sequence[int], *, dtype: str = "float16") -> list[Encoding]:
    """Time the encoder and the projections of its outputs."""
    place, encoder = weights.place, weights.model_of(dtype).model.encoder
    decoder = weights.decoder(dtype, max(batches))
    size = (max(batches), weights.config.num_mel_bins, WINDOW_FRAMES)
    features = torch.randn(size, device=place.device).to(getattr(torch, dtype))
    found = []
    for batch in batches:

        @torch.inference_mode()
        def encode(batch: int = batch) -> None:
            decoder.prefill_audio(range(batch), encoder(features[:batch]).last_hidden_state)

        seconds = busy_s(encode, place, 2 if place.is_narrow else 20)
        found.append(Encoding(weights.name, dtype, batch, statistics.median(seconds) / batch))
    return found
