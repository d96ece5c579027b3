"""transformers' ``generate`` on the same weights, eager and compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationMixin

from experiments.gpu.weights import Weights

NUM_TOKENS, QUICK_TOKENS = 100, 6
TIMES = 5
PROMPT = 4
# A static cache, which generate() compiles for, as transformers' documentation has it.
OPTIONS: dict[str, dict[str, Any]] = {"eager": {}, "compiled": {"cache_implementation": "static"}}
BATCHES = (1, 16)


@dataclass(frozen=True, slots=True)
class Peer:
    """transformers on one GPU.

    Attributes
    ----------
    batch : windows at once.
    token_ms : median time of a token of one window, its share of the encoder's included.
    tokens_per_s : of all windows.
    failure : why there are no figures.
    """

    shape: str
    name: str
    dtype: str
    batch: int
    token_ms: float = 0.0
    tokens_per_s: float = 0.0
    failure: str = ""


def measure_peers(weights: Weights, *, dtype: str) -> Iterator[Peer]:
    for batch in BATCHES:
        for name, options in OPTIONS.items():
            try:
                token_ms = _token_ms(weights, dtype, batch, options)
            except Exception as error:  # its failure must not end the measurement
                reason = f"{type(error).__name__}: {error}".splitlines()[0][:120]
                yield Peer(weights.name, name, dtype, batch, failure=reason)
            else:
                yield Peer(weights.name, name, dtype, batch, token_ms, 1e3 * batch / token_ms)


@torch.inference_mode()
def _token_ms(weights: Weights, dtype: str, batch: int, options: dict[str, Any]) -> float:
    model, place = weights.model_of(dtype), weights.place
    num_tokens = QUICK_TOKENS if place.is_narrow else NUM_TOKENS
    features = weights.features(batch).to(model.dtype)

    def generate() -> None:
        # Whisper's own generate would decode windows again until a text is accepted.
        written = GenerationMixin.generate(
            model,
            features,
            decoder_input_ids=torch.full((batch, PROMPT), 7, device=place.device),
            do_sample=False,
            num_beams=1,
            min_new_tokens=num_tokens,
            max_new_tokens=num_tokens,
            **options,
        )
        assert written.shape[1] == PROMPT + num_tokens

    return place.median_ms(generate, 1 if place.is_narrow else TIMES) / num_tokens
