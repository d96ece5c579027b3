"""transformers' ``generate`` on the same weights, eager and compiled, and CTranslate2 if it is installed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationMixin

from experiments.common.models.checkpoints import save_checkpoint
from experiments.gpu.weights import Weights
from specwhisper.types import WINDOW_FRAMES

NUM_TOKENS, QUICK_TOKENS = 100, 6
TIMES = 5
PROMPT = 4
# A static cache, which generate() compiles for, as transformers' documentation has it.
COMPILED: dict[str, Any] = {"cache_implementation": "static"}
Generate = Callable[[Tensor, int], None]  # from features so many tokens
BATCHES = (1, 16)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another program on one GPU.

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
    """Write as many tokens with each program."""
    for batch in BATCHES:
        for name, options in (("transformers", {}), ("transformers, compiled", COMPILED)):
            yield _measured(weights, name, dtype, batch, _transformers(weights, dtype, options))
    if find_spec("ctranslate2") is None:
        yield Peer(weights.name, "CTranslate2", dtype, 1, failure="it is not installed")
        return
    with TemporaryDirectory() as folder:
        run = _ctranslate2(weights, dtype, Path(folder))
        for batch in BATCHES:
            yield _measured(weights, "CTranslate2", dtype, batch, run)


def _measured(weights: Weights, name: str, dtype: str, batch: int, generate: Generate) -> Peer:
    num_tokens = QUICK_TOKENS if weights.place.is_narrow else NUM_TOKENS
    features, times = _features(weights, batch), []
    try:
        generate(features, num_tokens)  # compiles, and warms up
        for _ in range(1 if weights.place.is_narrow else TIMES):
            weights.place.synchronize()
            started_s = time.perf_counter()
            generate(features, num_tokens)
            weights.place.synchronize()
            times.append(time.perf_counter() - started_s)
    except Exception as error:  # another program's failure must not end the measurement
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:120]
        return Peer(weights.name, name, dtype, batch, failure=reason)
    token_s = median(times) / num_tokens
    return Peer(weights.name, name, dtype, batch, token_s * 1e3, batch / token_s)


def _features(weights: Weights, batch: int) -> Tensor:
    generator = torch.Generator(weights.place.device).manual_seed(weights.place.seed)
    size = (batch, weights.config.num_mel_bins, WINDOW_FRAMES)
    return torch.randn(size, generator=generator, device=weights.place.device)


def _transformers(weights: Weights, dtype: str, options: dict[str, Any]) -> Generate:
    model = weights.model_of(dtype)

    @torch.inference_mode()
    def generate(features: Tensor, num_tokens: int) -> None:
        # Whisper's own generate would decode windows again until a text is accepted.
        written = GenerationMixin.generate(
            model,
            features.to(model.dtype),
            decoder_input_ids=torch.full((len(features), PROMPT), 7, device=features.device),
            do_sample=False,
            num_beams=1,
            min_new_tokens=num_tokens,
            max_new_tokens=num_tokens,
            **options,
        )
        assert written.shape[1] == PROMPT + num_tokens

    return generate


def _ctranslate2(weights: Weights, dtype: str, folder: Path) -> Generate:
    models: list[Any] = []

    def generate(features: Tensor, num_tokens: int) -> None:
        import ctranslate2

        if not models:
            models.append(_converted(weights, dtype, folder))
        # The random weights would end a text at random, so the end is suppressed.
        models[0].generate(
            ctranslate2.StorageView.from_array(features.cpu().numpy()),
            [[weights.config.decoder_start_token_id, *[7] * (PROMPT - 1)]] * len(features),
            beam_size=1,
            max_length=PROMPT + num_tokens,
            suppress_tokens=[weights.config.eos_token_id],
        )

    return generate


def _converted(weights: Weights, dtype: str, folder: Path) -> Any:
    import ctranslate2
    from ctranslate2.converters import TransformersConverter

    source, converted = folder / "checkpoint", folder / "converted"
    if not converted.exists():
        save_checkpoint(weights.shape, source)
        TransformersConverter(str(source)).convert(str(converted))
    kind = dtype if weights.place.is_gpu else "float32"
    return ctranslate2.models.Whisper(str(converted), device=weights.place.device.type, compute_type=kind)
