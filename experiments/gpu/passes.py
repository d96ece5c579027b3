"""Time of forward passes, from call to choices, and of encoding windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from experiments.gpu.weights import Weights
from specwhisper.model.pytorch.backend import TorchBackend, TorchEncoder
from specwhisper.model.pytorch.decoder import CachedDecoder

HELD = 60  # tokens in each slot: the middle of a window
Sizes = Sequence[tuple[int, int]]  # sessions, tokens of each
FEW = ((1, 1), (1, 8), (8, 5), (32, 5), (64, 5))
MORE = (
    *((1, 5), (8, 1), (8, 8), (16, 5), (32, 1), (32, 8), (64, 1), (64, 8), (128, 5), (128, 8)),
    *((1, 16), (1, 64), (1, 227), (8, 32), (32, 32), (3, 3), (9, 10), (33, 9)),
)
QUICK = ((1, 8), (2, 4))
BATCHES, QUICK_BATCHES = (1, 2, 4, 8), (1, 2)  # windows at once
MIN_MS = 200  # duration of a size's measurement


@dataclass(frozen=True, slots=True)
class Timed:
    """One size of pass: the median milliseconds until its caller has the choices."""

    shape: str
    dtype: str
    rows: int
    width: int
    ms: float


def measure_passes(weights: Weights, sizes: Sizes, *, dtype: str) -> Iterator[Timed]:
    """Time passes of each size with a choice after every token, as in verification."""
    place = weights.place
    decoder = filled(weights, max(rows for rows, _ in sizes), dtype=dtype)
    for rows, width in sizes:
        run = step(decoder, rows, width)
        times = 2 if place.is_narrow else max(5, min(200, int(MIN_MS / place.median_ms(run, 3))))
        yield Timed(weights.name, dtype, rows, width, place.median_ms(run, times))


def filled(weights: Weights, num_slots: int, *, dtype: str) -> CachedDecoder:
    """Return a decoder with an encoded window and :data:`HELD` tokens in each slot."""
    decoder = weights.decoder(dtype, num_slots)
    for slot in range(num_slots):
        decoder.prefill_audio([slot], weights.encodings(1, dtype, seed=slot))
        decoder.append([slot], [weights.tokens(slot, HELD)], [1])
    return decoder


def step(decoder: CachedDecoder, rows: int, width: int) -> Callable[[], object]:
    slots, tokens = range(rows), [[7 + i for i in range(width)]] * rows

    def run() -> None:
        decoder.append(slots, tokens, [width] * rows).argmax(dim=1).tolist()
        for slot in slots:
            decoder.rollback(slot, HELD)

    return run


@dataclass(frozen=True, slots=True)
class Encoding:
    """Median milliseconds per window to encode a batch and write it to slots.

    Attributes
    ----------
    window_ms : the server's backend, from features in memory to keys and values in the slots.
    transformers_ms : transformers' encoder launched kernel by kernel, from features on the device.
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
