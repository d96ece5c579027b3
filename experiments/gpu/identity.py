"""Equalities on a GPU: CUDA graphs and plain kernels, GPU and CPU, with and without a draft."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from experiments.gpu.passes import HELD, filled, tokens_of
from experiments.gpu.weights import Weights
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.model.model import WhisperModel
from specwhisper.model.pytorch import decoder as decoders
from specwhisper.model.pytorch.kernels.graphs import uncaptured
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode

CLOSE = 1e-3  # tolerance of logits of order 1: devices sum float32 in different orders
NUM_SLOTS = 4
GAMMA = 4
NOISE = 0.1  # on the draft's weights: often right, often wrong
SAME = 1e-5


@dataclass(frozen=True, slots=True)
class Check:
    """A claim, whether it holds, and the measured value."""

    name: str
    holds: bool
    found: str


def check_identity(weights: Weights) -> Iterator[Check]:
    """Check one shape in float32; float16 texts are reported only."""
    yield _captured_is_the_same(weights)
    yield _same_as_on_a_cpu(weights)
    yield from _text_is_the_targets(weights)


def _captured_is_the_same(weights: Weights) -> Check:
    """Compare a replayed graph with kernels launched one by one."""
    rows = [tokens_of(weights, 100 + slot, 1 + 2 * slot) for slot in range(NUM_SLOTS)]

    def logits() -> torch.Tensor:
        decoder = filled(weights, NUM_SLOTS, dtype="float32")
        for _ in range(2):  # the second time replays
            for slot in range(NUM_SLOTS):
                decoder.rollback(slot, HELD)
            found = decoder.append(range(NUM_SLOTS), rows, [len(row) for row in rows])
        return found

    captured, graphs = logits(), decoders.CudaGraphs
    decoders.CudaGraphs = lambda *_, **__: uncaptured  # type: ignore[assignment, misc]
    try:
        plain = logits()
    finally:
        decoders.CudaGraphs = graphs  # type: ignore[misc]
    difference = float((captured - plain).abs().max())
    return Check(
        f"{weights.name}: graphs replay what they captured", difference < SAME, f"within {difference:.1g}"
    )


def _same_as_on_a_cpu(weights: Weights) -> Check:
    """Compare appends and rollbacks with a CPU's layout and kernels."""
    encoded = weights.encodings(NUM_SLOTS, "float32")
    here = weights.decoder("float32", NUM_SLOTS)
    there = weights.on("cpu").decoder("float32", NUM_SLOTS, has_static_shapes=False)
    random = np.random.default_rng(weights.place.seed)
    largest = 0.0
    here.prefill_audio(range(NUM_SLOTS), encoded)
    there.prefill_audio(range(NUM_SLOTS), encoded.cpu())
    for number in range(6):
        slots = random.permutation(NUM_SLOTS)[: 1 + number % NUM_SLOTS].tolist()
        rows = [tokens_of(weights, 200 + 10 * number + slot, int(random.integers(1, 40))) for slot in slots]
        scored = [len(row) for row in rows]
        ours, theirs = (decoder.append(slots, rows, scored) for decoder in (here, there))
        largest = max(largest, float((ours.cpu() - theirs).abs().max()))
        for slot in slots:
            length = int(random.integers(0, 30))
            for decoder in (here, there):
                decoder.rollback(slot, length)
    return Check(f"{weights.name}: logits of a CPU, float32", largest < CLOSE, f"within {largest:.1g}")


def _text_is_the_targets(weights: Weights) -> Iterator[Check]:
    """Transcribe noise with target-only and with a mostly right draft."""
    recordings = [_noise(weights.place.seed + i, 4.0 + i) for i in range(NUM_SLOTS)]
    options = DecodingOptions.greedy(language="en", max_new_tokens=24 if weights.place.is_narrow else 100)
    for dtype in ("float32", "float16"):
        target, draft = (
            WhisperModel(
                weights.checkpoint(dtype, noise=noise),
                NUM_SLOTS,
                device=weights.place.device,
                has_static_shapes=True,
            )
            for noise in (0.0, NOISE)
        )
        target_only = InlinePair(target, mode=Mode.TARGET_ONLY).transcribe(recordings, options)
        drafted = InlinePair(target, draft, gamma=GAMMA).transcribe(recordings, options)
        same = [a.window_tokens == b.window_tokens for a, b in zip(target_only, drafted, strict=True)]
        accepted = sum(text.stats.num_accepted for text in drafted)
        tried = sum(text.stats.num_verified for text in drafted)
        found = f"{sum(same)} of {len(same)} texts are equal, {accepted} of {tried} candidates accepted"
        yield Check(f"{weights.name}: text with a draft, {dtype}", all(same) or dtype != "float32", found)


def _noise(seed: int, length_s: float) -> bytes:
    samples = np.random.default_rng(seed).normal(0, 3_000, int(length_s * 16_000))
    return samples.clip(-32_768, 32_767).astype("<i2").tobytes()
