"""Logits over appends and rollbacks, against transformers' own decoder on the same weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from experiments.gpu.identity import Check
from experiments.gpu.passes import tokens_of
from experiments.gpu.weights import Weights
from specwhisper.types import WINDOW_FRAMES

NUM_TOKENS, QUICK_TOKENS = 120, 24
CLOSE = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 2e-1}  # of the largest logit
LOST_MARGIN = {"float32": 1e-3, "float16": 5e-2, "bfloat16": 4e-1}  # of the largest logit, at another choice


@torch.inference_mode()
def check_logits(weights: Weights, dtype: str, *, num_tokens: int) -> Check:
    """Append a text in pieces with wrong tokens that are rolled back; compare every choice."""
    model, place = weights.model_of(dtype), weights.place
    features = torch.randn(
        (1, weights.config.num_mel_bins, WINDOW_FRAMES),
        generator=torch.Generator(place.device).manual_seed(place.seed),
        device=place.device,
    ).to(getattr(torch, dtype))
    encoded = model.model.encoder(features).last_hidden_state
    text = tokens_of(weights, 1, num_tokens)
    ids = torch.tensor([text], device=place.device)
    theirs = model(encoder_outputs=(encoded,), decoder_input_ids=ids).logits[0].float()
    ours = _in_pieces(weights, dtype, encoded, text)
    largest = float(theirs.abs().max())
    error = float((ours - theirs).abs().max()) / largest
    best = theirs.topk(2, dim=-1)
    is_other = ours.argmax(dim=-1) != best.indices[:, 0]
    margins = (best.values[:, 0] - best.values[:, 1])[is_other] / largest
    lost = float(margins.max()) if len(margins) else 0.0
    return Check(
        f"{weights.name}: logits of transformers, {dtype}",
        error < CLOSE[dtype] and lost < LOST_MARGIN[dtype],
        f"within {error:.1g} of the largest; {int(is_other.sum())} of {len(text)} choices differ, "
        f"at margins of up to {lost:.1g}",
    )


def _in_pieces(weights: Weights, dtype: str, encoded: Tensor, text: list[int]) -> Tensor:
    decoder, random = weights.decoder(dtype, 2), np.random.default_rng(weights.place.seed)
    decoder.prefill_audio([1], encoded)
    found, at = [], 0
    while at < len(text):
        width = min(int(random.integers(1, 12)), len(text) - at)
        wrong = tokens_of(weights, at + 1_000, 3)
        found.append(decoder.append([1], [text[at : at + width] + wrong], [width + len(wrong)])[:width])
        at += width
        decoder.rollback(1, at)
    return torch.cat(found)
