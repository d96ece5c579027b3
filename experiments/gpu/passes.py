"""Equalities on a GPU, and the time of forward passes, from call to choices, and of encoding windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from experiments.common.inline_pair import InlinePair
from experiments.gpu.service import noise
from experiments.gpu.weights import Weights
from specwhisper.model.model import WhisperModel
from specwhisper.model.pytorch.backend import TorchEncoder, open_decoder
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode

NUM_SLOTS = 4
GAMMA = 4
NOISE = 0.1  # on the draft's weights: often right, often wrong
NUM_TOKENS, QUICK_TOKENS = 120, 24
CLOSE = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 2e-1}  # error over the largest logit
LOST_MARGIN = {"float32": 1e-3, "float16": 5e-2, "bfloat16": 4e-1}  # a lost choice may have, over the same


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    holds: bool
    found: str


@torch.no_grad()  # tensors made in inference mode could not be used in later stages
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
        logits = decoder.append([1], [text[at : at + width] + wrong], [width + len(wrong)])
        pieces.append(torch.as_tensor(logits[:width]))
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
    """Time passes of each size with a choice after every token, as in verification.

    Each slot holds an encoded window and :data:`HELD` tokens.
    """
    place, num_slots = weights.place, max(rows for rows, _ in sizes)
    decoder = weights.decoder(dtype, num_slots)
    for slot in range(num_slots):
        decoder.prefill_audio([slot], weights.encodings(1, dtype, seed=slot))
        decoder.append([slot], [weights.tokens(slot, HELD)], [1])

    def step(rows: int, width: int) -> None:
        tokens = [[7 + i for i in range(width)]] * rows
        decoder.append(range(rows), tokens, [width] * rows).argmax(1).tolist()
        for slot in range(rows):
            decoder.rollback(slot, HELD)

    for rows, width in sizes:
        run = partial(step, rows, width)
        times = 2 if place.is_narrow else max(5, min(200, int(MIN_MS / place.median_ms(run, 3))))
        yield Timed(weights.name, dtype, rows, width, place.median_ms(run, times))


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
    backend = open_decoder(
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
