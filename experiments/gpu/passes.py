"""Forward passes of every bucket, each against its floor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median
from unittest import mock

import torch

from experiments.gpu.clock import busy_s, waited_s
from experiments.gpu.floor import floor_s
from experiments.gpu.weights import Weights
from experiments.steps.floor import Machine
from specwhisper.model.pytorch import decoder as decoders
from specwhisper.model.pytorch.decoder import CachedDecoder
from specwhisper.model.pytorch.kernels import attention, choice
from specwhisper.model.pytorch.kernels.packed_inputs import Following

HELD = 60  # tokens in each slot: the middle of a window
Sizes = Sequence[tuple[int, int]]  # sessions, tokens of each
FEW = ((1, 1), (1, 8), (8, 5), (32, 5), (64, 5))
MORE = (
    *((1, 5), (8, 1), (8, 8), (16, 5), (32, 1), (32, 8), (64, 1), (64, 8), (128, 5), (128, 8)),
    *((1, 16), (1, 64), (1, 227), (8, 32), (32, 32), (3, 3), (9, 10), (33, 9)),
)
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
    sizes: Sizes,
    *,
    dtype: str = "float16",
    cross_cache: str | None = None,
    is_fallback: bool = False,
) -> list[Point]:
    """Time passes of each size with a choice after every token, as in verification."""
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
    """Use torch's operators instead of Triton's kernels in decoders made meanwhile."""
    with (
        mock.patch.object(decoders, "supports_cache", return_value=False),
        mock.patch.object(attention, "supports_cache", return_value=False),
        mock.patch.object(choice, "supports", return_value=False),
    ):
        yield


def filled(weights: Weights, num_slots: int, *, dtype: str, cross_cache: str | None = None) -> CachedDecoder:
    """Return a decoder with an encoded window and :data:`HELD` tokens in each slot."""
    decoder = weights.decoder(dtype, num_slots, cross_cache=cross_cache)
    for slot in range(num_slots):
        decoder.prefill_audio([slot], weights.encodings(1, dtype, seed=slot))
        decoder.append([slot], [tokens_of(weights, slot, HELD)], [1])
    return decoder


def tokens_of(weights: Weights, seed: int, length: int) -> list[int]:
    """Return random tokens."""
    generator = torch.Generator().manual_seed(weights.place.seed + seed)
    return torch.randint(weights.config.vocab_size, (length,), generator=generator).tolist()


def step(decoder: CachedDecoder, rows: int, width: int) -> Callable[[], object]:
    """Return a pass that appends to the first slots, chooses after each token, and rolls back."""
    slots, tokens, following = range(rows), [[7 + i for i in range(width)]] * rows, [Following()] * rows

    def run() -> None:
        for _ in decoder.choose(slots, tokens, following):
            pass
        for slot in slots:
            decoder.rollback(slot, HELD)

    return run
