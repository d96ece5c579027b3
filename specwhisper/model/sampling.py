"""Sample tokens by adding noise to logits: draft and target choose alike.

The largest of ``logits / temperature + Gumbel noise`` is a sample from their softmax (the Gumbel-max trick).
The noise is counter-based (:mod:`specwhisper.speculation.noise`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specwhisper.options import DecodingOptions
from specwhisper.speculation.noise import FIRST, GOLDEN, SECOND, Stream, position_key, window_key
from specwhisper.types import Window


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a window's tokens are drawn."""

    temperature: float
    seed: int
    start_sample: int
    attempt: int = 0
    top_k: int = 0
    top_p: float = 1.0

    def key(self, position: int, stream: Stream = Stream.CHOICE) -> int:
        """Return the key of the noise at a position."""
        return position_key(window_key(self.seed, self.start_sample, self.attempt, stream), position)


def window_sampling(window: Window, options: DecodingOptions) -> Sampling | None:
    """Return how a window's tokens are drawn; ``None`` takes the likeliest."""
    if window.temperature == 0:
        return None
    return Sampling(
        temperature=window.temperature,
        seed=options.seed,
        start_sample=window.start_sample,
        attempt=window.attempt,
        top_k=options.top_k,
        top_p=options.top_p,
    )


def gumbel(keys: Sequence[int], size: int, device: torch.device | str = "cpu") -> Tensor:
    """Return Gumbel noise for each key and id: float32, keys x size."""
    signed = torch.tensor([_signed(key) for key in keys], dtype=torch.int64, device=device)
    bits = signed[:, None] + torch.arange(1, size + 1, device=device) * _signed(GOLDEN)  # wraps around
    bits = (bits ^ _shifted(bits, 30)) * _signed(FIRST)
    bits = (bits ^ _shifted(bits, 27)) * _signed(SECOND)
    bits = bits ^ _shifted(bits, 31)
    # 53 bits in the middle of their interval: never 0 or 1, so that the logarithms are finite.
    uniform = (_shifted(bits, 11).double() + 0.5) * 2.0**-53
    return -torch.log(-torch.log(uniform)).float()


def filter_top_k_top_p(logits: Tensor, sampling: Sampling) -> Tensor:
    """Set logits outside top-k and top-p to -inf, as transformers' warpers do."""
    if 0 < sampling.top_k < len(logits):
        logits = logits.masked_fill(logits < logits.topk(sampling.top_k).values[-1], -torch.inf)
    if sampling.top_p < 1:
        ascending, order = (logits / sampling.temperature).sort()
        is_rest = ascending.softmax(dim=-1).cumsum(dim=-1) <= 1 - sampling.top_p
        is_rest[-1] = False
        logits = logits.masked_fill(torch.zeros_like(is_rest).scatter(0, order, is_rest), -torch.inf)
    return logits


def add_gumbel(logits: Tensor, samplings: Sequence[Sampling | None], keys: Sequence[int]) -> Tensor:
    """Return values whose largest is each row's choice: logits, or logits with noise.

    Parameters
    ----------
    logits : rows x vocabulary, after the rules, top-k and top-p.
    samplings : of each row; ``None`` leaves its logits.
    keys : of each row's noise.
    """
    drawn = {i: sampling for i, sampling in enumerate(samplings) if sampling is not None}
    if not drawn:
        return logits
    rows = list(drawn)
    temperatures = torch.tensor([sampling.temperature for sampling in drawn.values()], device=logits.device)
    noise = gumbel([keys[i] for i in rows], logits.shape[1], logits.device)
    chosen_by = logits.clone()
    chosen_by[rows] = logits[rows] / temperatures[:, None] + noise
    return chosen_by


def _signed(value: int) -> int:
    """Return the same 64 bits as a signed number, as torch needs them."""
    return value - 2**64 if value >= 2**63 else value


def _shifted(bits: Tensor, places: int) -> Tensor:
    """Shift right and fill with zeros."""
    return (bits >> places) & ((1 << (64 - places)) - 1)
