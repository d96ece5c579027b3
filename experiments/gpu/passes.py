"""Forward passes of every bucket, each against its floor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median

import torch

from experiments.gpu.clock import busy_s, waited_s
from experiments.gpu.floor import floor_s
from experiments.gpu.weights import Weights
from experiments.steps.floor import Machine
from specwhisper.model.pytorch.decoder import CachedDecoder
from specwhisper.model.pytorch.kernels import padded_batch
from specwhisper.model.pytorch.kernels.padded_runner import BATCHES, WIDTHS

HELD = 60  # tokens in each slot: the middle of a window
PADDED = ((1, 7), (3, 3), (5, 5), (9, 10), (33, 9), (48, 20))  # padded to the next bucket
ALL = (*((rows, width) for rows in BATCHES for width in WIDTHS), *PADDED)
FEW = tuple((rows, width) for rows in (1, 8, 64) for width in (1, 8, 32))
FALLBACK = ((1, 8), (8, 8), (64, 8))
QUICK = ((1, 8), (2, 4))
MIN_S = 0.2  # duration of a point's measurement


@dataclass(frozen=True, slots=True)
class Point:
    """One size of forward pass.

    Attributes
    ----------
    is_fallback : whether torch's attention is used instead of kernels.
    busy_s : median device time of consecutive passes.
    waited_s : median time that a caller waits for a single pass.
    """

    shape: str
    dtype: str
    cross_cache: str | None
    is_fallback: bool
    rows: int
    width: int
    floor_s: float
    busy_s: float
    waited_s: float

    @property
    def multiple(self) -> float:
        """Device time relative to the floor."""
        return self.busy_s / self.floor_s


def measure_passes(
    weights: Weights,
    machine: Machine,
    sizes: Sequence[tuple[int, int]],
    *,
    dtype: str = "float16",
    cross_cache: str | None = None,
    is_fallback: bool = False,
) -> list[Point]:
    """Time passes of each size with scores after every token, as in verification."""
    place, num_slots, points = weights.place, max(rows for rows, _ in sizes), []
    with torch_attends() if is_fallback else nullcontext():
        decoder = filled(weights, num_slots, dtype=dtype, cross_cache=cross_cache)
        for rows, width in sizes:
            run = step(decoder, rows, width)
            times = 2 if place.is_narrow else max(5, min(200, int(MIN_S / max(waited_s(run, place, 3)))))
            size = {"rows": rows, "width": width}
            points.append(
                Point(
                    shape=weights.name,
                    dtype=dtype,
                    cross_cache=cross_cache,
                    is_fallback=is_fallback,
                    floor_s=floor_s(
                        weights.config, dtype, machine, held=HELD, cross_cache=cross_cache, **size
                    ),
                    busy_s=median(busy_s(run, place, times)),
                    waited_s=median(waited_s(run, place, times)),
                    **size,
                )
            )
    return points


@contextmanager
def torch_attends() -> Iterator[None]:
    """Use torch's attention instead of Triton's kernels in graphs captured meanwhile."""
    supports = padded_batch.supports
    padded_batch.supports = lambda cache: False
    try:
        yield
    finally:
        padded_batch.supports = supports


def filled(weights: Weights, num_slots: int, *, dtype: str, cross_cache: str | None = None) -> CachedDecoder:
    """Return a decoder with an encoded window and :data:`HELD` tokens in each slot."""
    decoder = weights.decoder(dtype, num_slots, cross_cache=cross_cache)
    for slot, encoded in enumerate(weights.encodings(num_slots, dtype)):
        decoder.prefill_audio(slot, encoded)
        decoder.append([slot], [tokens_of(weights, slot, HELD)], [1])
    return decoder


def tokens_of(weights: Weights, seed: int, length: int) -> list[int]:
    """Return random tokens."""
    generator = torch.Generator().manual_seed(weights.place.seed + seed)
    return torch.randint(weights.config.vocab_size, (length,), generator=generator).tolist()


def step(decoder: CachedDecoder, rows: int, width: int) -> Callable[[], object]:
    """Return a pass that appends to the first slots, scores each token, and rolls back."""
    slots, tokens, scored = range(rows), [[7 + i for i in range(width)]] * rows, [width] * rows

    def run() -> None:
        decoder.append(slots, tokens, scored)
        for slot in slots:
            decoder.rollback(slot, HELD)

    return run
