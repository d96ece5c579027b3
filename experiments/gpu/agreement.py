"""How often reduced precision chooses float32's token, and how close to a tie it does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.gpu.weights import Weights

NUM_WINDOWS, NUM_TOKENS = 16, 224
QUICK_WINDOWS, QUICK_TOKENS = 2, 24


@dataclass(frozen=True, slots=True)
class Agreement:
    """One precision compared with float32 after the same prefixes.

    Attributes
    ----------
    num_choices, num_equal : number of choices, and of those equal to float32's.
    error : norm of the logits' difference relative to that of their deviation from the mean.
    median_margin : median difference of float32's two best logits.
    largest_lost_margin : largest margin of float32 at a different choice; 0 if all are equal.
    """

    shape: str
    dtype: str
    num_choices: int
    num_equal: int
    error: float
    median_margin: float
    largest_lost_margin: float


def measure_agreement(weights: Weights, *, quick: bool) -> Iterator[Agreement]:
    """Encode and decode the same random texts in every precision."""
    num_windows, num_tokens = (QUICK_WINDOWS, QUICK_TOKENS) if quick else (NUM_WINDOWS, NUM_TOKENS)
    features = weights.features(num_windows)
    texts = [weights.tokens(slot, num_tokens) for slot in range(num_windows)]
    exact = _logits(weights, "float32", features, texts)
    best = exact.topk(2, dim=-1)
    margins = best.values[:, 0] - best.values[:, 1]
    spread = (exact - exact.mean(dim=-1, keepdim=True)).norm()
    for dtype in ("float16", "bfloat16"):
        logits = _logits(weights, dtype, features, texts)
        is_equal = logits.argmax(dim=-1) == best.indices[:, 0]
        lost = margins[~is_equal]
        error = float((logits - exact).norm() / spread)
        largest_lost = float(lost.max()) if len(lost) else 0.0
        counts = len(margins), int(is_equal.sum())
        yield Agreement(weights.name, dtype, *counts, error, float(margins.median()), largest_lost)


@torch.inference_mode()
def _logits(weights: Weights, dtype: str, features: Tensor, texts: Sequence[Sequence[int]]) -> Tensor:
    """Return the logits after every token, window by window."""
    encoder = weights.model_of(dtype).model.encoder
    decoder = weights.decoder(dtype, 1)
    found = []
    for window, text in zip(features.to(getattr(torch, dtype)), texts, strict=True):
        decoder.prefill_audio([0], encoder(window[None]).last_hidden_state)
        found.append(decoder.append([0], [text], [len(text)]))
    return torch.cat(found)
