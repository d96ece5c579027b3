"""Time to encode windows, one by one and in batches: by the server's backend, and by transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from experiments.gpu.weights import Weights
from specwhisper.model.pytorch.backend import TorchBackend, TorchEncoder

BATCHES, QUICK = (1, 2, 4, 8), (1, 2)


@dataclass(frozen=True, slots=True)
class Encoding:
    """Median milliseconds per window to encode a batch and write it to slots.

    Attributes
    ----------
    window_ms : of the server's backend, from features in memory to keys and values in the slots.
    transformers_ms : of transformers' encoder launched kernel by kernel, from features on the device.
    """

    shape: str
    dtype: str
    batch: int
    window_ms: float
    transformers_ms: float


def measure_encoding(weights: Weights, batches: Sequence[int], *, dtype: str) -> Iterator[Encoding]:
    """Time the encoder and the projections of its outputs."""
    place, checkpoint = weights.place, weights.checkpoint(dtype)
    encoder = TorchEncoder(checkpoint, place.device)
    backend = TorchBackend(
        checkpoint, max(batches), encoder=encoder, device=place.device, has_static_shapes=True
    )
    plain, decoder = weights.model_of(dtype).model.encoder, weights.decoder(dtype, max(batches))
    there = weights.features(max(batches))
    features, there = there.cpu().numpy(), there.to(getattr(torch, dtype))
    times = 2 if place.is_narrow else 20
    for batch in batches:
        windows = list(enumerate(features[:batch]))

        @torch.inference_mode()
        def encode(batch: int = batch) -> None:
            decoder.prefill_audio(range(batch), plain(there[:batch]).last_hidden_state)

        ours = place.median_ms(lambda windows=windows: backend.encode(windows), times)
        theirs = place.median_ms(encode, times)
        yield Encoding(weights.name, dtype, batch, ours / batch, theirs / batch)
