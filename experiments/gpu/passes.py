"""Time of forward passes, from call to choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from experiments.gpu.weights import Weights
from specwhisper.model.pytorch.decoder import CachedDecoder

HELD = 60  # tokens in each slot: the middle of a window
Sizes = Sequence[tuple[int, int]]  # sessions, tokens of each
FEW = ((1, 1), (1, 8), (8, 5), (32, 5), (64, 5))
MORE = (
    *((1, 5), (8, 1), (8, 8), (16, 5), (32, 1), (32, 8), (64, 1), (64, 8), (128, 5), (128, 8)),
    *((1, 16), (1, 64), (1, 227), (8, 32), (32, 32), (3, 3), (9, 10), (33, 9)),
)
QUICK = ((1, 8), (2, 4))
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
    """Return a pass that appends to the first slots, chooses after each token, and rolls back."""
    slots, tokens = range(rows), [[7 + i for i in range(width)]] * rows

    def run() -> None:
        decoder.append(slots, tokens, [width] * rows).argmax(dim=1).tolist()
        for slot in slots:
            decoder.rollback(slot, HELD)

    return run
