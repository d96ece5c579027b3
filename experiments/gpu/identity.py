"""Equalities on a GPU: logits and transformers', texts with and without a draft."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from experiments.common.inline_pair import InlinePair
from experiments.gpu.service import noise
from experiments.gpu.weights import Weights
from specwhisper.model.model import WhisperModel
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode

NUM_SLOTS = 4
GAMMA = 4
NOISE = 0.1  # on the draft's weights: often right, often wrong
NUM_TOKENS, QUICK_TOKENS = 120, 24
CLOSE = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 2e-1}  # error over the largest logit
LOST_MARGIN = {
    "float32": 1e-3,
    "float16": 5e-2,
    "bfloat16": 4e-1,
}  # margin of a lost choice over the largest logit


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    holds: bool
    found: str


@torch.inference_mode()
def check_logits(weights: Weights, dtype: str, *, quick: bool) -> Iterator[Check]:
    """Append a text in pieces with wrong tokens that are rolled back; compare choices with transformers'."""
    model, place = weights.model_of(dtype), weights.place
    encoded = model.model.encoder(weights.features(1).to(model.dtype)).last_hidden_state
    text = weights.tokens(1, QUICK_TOKENS if quick else NUM_TOKENS)
    ids = torch.tensor([text], device=place.device)
    theirs = model(encoder_outputs=(encoded,), decoder_input_ids=ids).logits[0].float()
    decoder, random = weights.decoder(dtype, 2), np.random.default_rng(place.seed)
    decoder.prefill_audio([1], encoded)
    pieces, at = [], 0
    while at < len(text):
        width = min(int(random.integers(1, 12)), len(text) - at)
        wrong = weights.tokens(at + 1_000, 3)
        pieces.append(decoder.append([1], [text[at : at + width] + wrong], [width + len(wrong)])[:width])
        at += width
        decoder.rollback(1, at)
    ours = torch.cat(pieces)
    largest = float(theirs.abs().max())
    error = float((ours - theirs).abs().max()) / largest
    best = theirs.topk(2, dim=-1)
    is_other = ours.argmax(dim=-1) != best.indices[:, 0]
    margins = (best.values[:, 0] - best.values[:, 1])[is_other] / largest
    lost = float(margins.max()) if len(margins) else 0.0
    yield Check(
        f"{weights.name}: logits of transformers, {dtype}",
        error < CLOSE[dtype] and lost < LOST_MARGIN[dtype],
        f"within {error:.1g} of the largest; {int(is_other.sum())} of {len(text)} choices differ, "
        f"at margins of up to {lost:.1g}",
    )


def check_texts(weights: Weights) -> Iterator[Check]:
    """Transcribe noise with target-only and with a mostly right draft; float16 texts are reported only."""
    recordings = [noise((weights.place.seed, i), 4.0 + i) for i in range(NUM_SLOTS)]
    options = DecodingOptions.greedy(language="en", max_new_tokens=24 if weights.place.is_narrow else 100)
    for dtype in ("float32", "float16"):
        target, draft = (
            WhisperModel(
                weights.checkpoint(dtype, noise=noise_of),
                NUM_SLOTS,
                device=weights.place.device,
                has_static_shapes=True,
            )
            for noise_of in (0.0, NOISE)
        )
        target_only = InlinePair(target, mode=Mode.TARGET_ONLY).transcribe(recordings, options)
        drafted = InlinePair(target, draft, gamma=GAMMA).transcribe(recordings, options)
        same = [a.window_tokens == b.window_tokens for a, b in zip(target_only, drafted, strict=True)]
        accepted = sum(text.stats.num_accepted for text in drafted)
        tried = sum(text.stats.num_verified for text in drafted)
        found = f"{sum(same)} of {len(same)} texts are equal, {accepted} of {tried} candidates accepted"
        yield Check(f"{weights.name}: text with a draft, {dtype}", all(same) or dtype != "float32", found)
