"""Attention: Triton's kernels, and torch's that copy slots first, over the same slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from specwhisper.model.pytorch.kernels.triton_attention import (
    quantise_cache,
    slot_attention,
    slot_attention_reference,
    supports,
)
from torch import Tensor

from experiments.gpu.clock import median_s
from experiments.gpu.weights import Place, Weights
from experiments.steps.floor import Machine
from specwhisper.model.pytorch.kernels.graphs import CudaGraphs, uncaptured
from specwhisper.model.pytorch.kernels.layer_cache import CROSS_CACHE_DTYPES

SIZES = ((1, 1), (1, 8), (8, 8), (64, 1), (64, 8), (64, 32))
QUICK = ((1, 8), (4, 2))
NUM_SLOTS = 64  # more than fits into caches
CALLS = 16  # in one graph, each over other slots
HELD = 60
WINDOW, TEXT = "window", "text"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One layer's attention over one cache.

    Attributes
    ----------
    floor_s : time to read the attended keys and values.
    kernel_s, torch_s : medians; ``kernel_s`` and ``error`` are ``None`` without a kernel.
    error : norm of the difference relative to torch's result, which sums in float32.
    """

    shape: str
    attends_to: str
    cache: str | None
    rows: int
    width: int
    floor_s: float
    torch_s: float
    kernel_s: float | None = None
    error: float | None = None


@dataclass(frozen=True, slots=True)
class _Slots:
    """The attended slots."""

    place: Place
    cache: Tensor
    scales: Tensor | None
    starts: int | None

    def bytes_seen(self, rows: int, width: int) -> float:
        """Return the bytes to read."""
        _, _, heads, positions, head_size = self.cache.shape
        seen = positions if self.starts is None else self.starts + width
        of_number = self.cache.element_size() + (0 if self.scales is None else 2 / head_size)
        return 2 * rows * heads * seen * head_size * of_number

    def calls(self, attend: Callable[..., Tensor], query: Tensor) -> Callable[[], Tensor]:
        """Return a function of many attention calls, each over the next slots."""
        rows, num_slots, device = len(query), self.cache.shape[1], self.place.device
        every = torch.arange(CALLS * rows, dtype=torch.int32, device=device).view(CALLS, rows) % num_slots
        starts = None
        if self.starts is not None:
            starts = torch.full((rows,), self.starts, dtype=torch.int32, device=device)

        @torch.inference_mode()
        def run() -> Tensor:
            return [attend(query, self.cache, slots, starts, scales=self.scales) for slots in every][-1]

        return run

    def call_s(self, attend: Callable[..., Tensor], query: Tensor) -> float:
        """Return the time of one call."""
        capture = CudaGraphs(self.place.device) if self.place.is_gpu else uncaptured
        run = capture(self.calls(attend, query))
        return median_s(run, self.place, 2 if self.place.is_narrow else 20) / CALLS


def measure_kernels(
    weights: Weights, machine: Machine, sizes: Sequence[tuple[int, int]], *, dtype: str = "float16"
) -> list[Kernel]:
    """Time attention to the window, in every cache type, and to the text."""
    config, place, found = weights.config, weights.place, []
    heads, num_slots = config.decoder_attention_heads, 4 if place.is_narrow else NUM_SLOTS
    head_size, type_ = config.d_model // heads, getattr(torch, dtype)
    caches = [(WINDOW, None), *((WINDOW, name) for name in CROSS_CACHE_DTYPES), (TEXT, None)]
    for attends_to, name in caches:
        positions = config.max_source_positions if attends_to == WINDOW else config.max_target_positions
        cache, scales = torch.randn(2, num_slots, heads, positions, head_size, device=place.device), None
        if name is None:
            cache = cache.to(type_)
        else:
            cache, scales = quantise_cache(cache, CROSS_CACHE_DTYPES[name])
        slots = _Slots(place, cache, scales, None if attends_to == WINDOW else HELD)
        for rows, width in sizes:
            query = torch.randn(rows, width, heads, head_size, device=place.device).to(type_)
            expected = slots.calls(slot_attention_reference, query.float() if scales is None else query)
            kernel_s = error = None
            if supports(cache):
                kernel_s = slots.call_s(slot_attention, query)
                exact = expected().float()
                error = float((slots.calls(slot_attention, query)().float() - exact).norm() / exact.norm())
            found.append(
                Kernel(
                    weights.name,
                    attends_to,
                    name,
                    rows,
                    width,
                    slots.bytes_seen(rows, width) / machine.bytes_per_s,
                    slots.call_s(slot_attention_reference, query),
                    kernel_s,
                    error,
                )
            )
    return found
