"""Time to encode windows, one by one and in batches: by the server's backend, and by transformers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from experiments.gpu.clock import busy_s, waited_s
from experiments.gpu.weights import Weights
from specwhisper.model.pytorch.backend import TorchBackend
from specwhisper.model.pytorch.encoder import TorchEncoder
from specwhisper.types import WINDOW_FRAMES

BATCHES = (1, 2, 4, 8)
QUICK = (1, 2)


@dataclass(frozen=True, slots=True)
class Encoding:
    """Median seconds per window to encode a batch and write it to slots.

    Attributes
    ----------
    window_s : of the server's backend, from features in memory to keys and values in the slots.
    eager_s : of transformers' encoder launched kernel by kernel, from features on the device.
    """

    shape: str
    dtype: str
    batch: int
    window_s: float
    eager_s: float


def measure_encoding(weights: Weights, batches: Sequence[int], *, dtype: str = "float16") -> list[Encoding]:
    """Time the encoder and the projections of its outputs."""
    place, checkpoint = weights.place, weights.checkpoint(dtype)
    encoder = TorchEncoder(checkpoint, place.device)
    backend = TorchBackend(
        checkpoint, max(batches), encoder=encoder, device=place.device, has_static_shapes=True
    )
    encoder.warm_up()
    plain, decoder = weights.model_of(dtype).model.encoder, weights.decoder(dtype, max(batches))
    size = (max(batches), weights.config.num_mel_bins, WINDOW_FRAMES)
    features = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
    there = torch.from_numpy(features).to(place.device, getattr(torch, dtype))
    found, times = [], 2 if place.is_narrow else 20
    for batch in batches:
        windows = list(enumerate(features[:batch]))

        @torch.inference_mode()
        def encode(batch: int = batch) -> None:
            decoder.prefill_audio(range(batch), plain(there[:batch]).last_hidden_state)

        ours = waited_s(lambda windows=windows: backend.encode(windows), place, times)
        theirs = busy_s(encode, place, times)
        medians = (statistics.median(each) / batch for each in (ours, theirs))
        found.append(Encoding(weights.name, dtype, batch, *medians))
    return found
