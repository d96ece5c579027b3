"""Random weights of published shapes, built on the measured device."""

from __future__ import annotations

import copy
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor
from transformers import WhisperConfig, WhisperForConditionalGeneration

from experiments.common.models.checkpoints import (
    PUBLISHED,
    Shape,
    build_model,
    checkpoint_from_model,
    with_noise,
)
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.checkpoints.sizes import read_sizes
from specwhisper.model.pytorch.decoder import CachedDecoder, load_decoder_weights
from specwhisper.types import WINDOW_FRAMES


@dataclass(frozen=True, slots=True)
class Place:
    """The measured device.

    Attributes
    ----------
    is_narrow : whether shapes are reduced, so that a CPU needs seconds.
    """

    device: torch.device
    is_narrow: bool
    seed: int

    @property
    def is_gpu(self) -> bool:
        """Whether it has CUDA graphs, streams and Triton's kernels."""
        return self.device.type == "cuda"

    def tidy(self) -> None:
        """Free unused memory: decoders and their passes form reference cycles."""
        gc.collect()
        if self.is_gpu:
            torch.cuda.empty_cache()

    def synchronize(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def median_ms(self, run: Callable[[], object], times: int) -> float:
        """Return the median time from call to result, after one run to warm up."""
        found = []
        for _ in range(1 + times):
            self.synchronize()
            started_s = time.perf_counter()
            run()
            self.synchronize()
            found.append((time.perf_counter() - started_s) * 1e3)
        return median(found[1:])


class Weights:
    """One shape's weights in float32 and other types; the shape is reduced on a CPU."""

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.place = place
        shape = replace(PUBLISHED[name], words="made-up", seed=place.seed)
        self._shape = _narrow(shape) if place.is_narrow else shape
        with place.device:
            model, self._tokens = build_model(self._shape)
        self._models = {"float32": model}

    @property
    def config(self) -> WhisperConfig:
        return self._models["float32"].config

    def model_of(self, dtype: str) -> WhisperForConditionalGeneration:
        if dtype not in self._models:
            self._models[dtype] = copy.deepcopy(self._models["float32"]).to(getattr(torch, dtype))
        return self._models[dtype]

    def checkpoint(self, dtype: str, *, noise: float = 0.0) -> Checkpoint:
        """Return a checkpoint in a type; noise, relative to the weights, makes it a mostly right draft."""
        model = self.model_of(dtype)
        if noise:
            noisy = with_noise(self.model_of("float32"), noise * self._shape.scale)
            model = noisy.to(getattr(torch, dtype))
        return checkpoint_from_model(model, self._tokens, name=f"random {self.name}")

    def decoder(self, dtype: str, num_slots: int) -> CachedDecoder:
        state: dict[str, Tensor] = self.model_of(dtype).state_dict()
        with torch.device("meta"):
            decoder = CachedDecoder(read_sizes(self.name, self.config.to_dict()), num_slots)
        load_decoder_weights(decoder, state.__getitem__, is_tied=True)
        decoder.eval().requires_grad_(False)
        decoder.allocate(self.place.device, has_static_shapes=True)
        return decoder

    def features(self, num_windows: int) -> Tensor:
        return self._normal(num_windows, self.config.num_mel_bins, WINDOW_FRAMES)

    def encodings(self, num_windows: int, dtype: str, *, seed: int = 0) -> Tensor:
        """Return random encoder outputs: windows x positions x d_model."""
        size = num_windows, self.config.max_source_positions, self.config.d_model
        return self._normal(*size, seed=seed).to(getattr(torch, dtype))

    def tokens(self, seed: int, length: int) -> list[int]:
        generator = torch.Generator().manual_seed(self.place.seed + seed)
        return torch.randint(self.config.vocab_size, (length,), generator=generator).tolist()

    def _normal(self, *size: int, seed: int = 0) -> Tensor:
        generator = torch.Generator(self.place.device).manual_seed(self.place.seed + seed)
        return torch.randn(size, generator=generator, device=self.place.device)


def _narrow(shape: Shape) -> Shape:
    """Reduce a shape's size; keep what else distinguishes it."""
    layers = min(shape.decoder_layers, 3)
    small = {"d_model": 64, "heads": 2, "encoder_layers": 1, "decoder_layers": layers, "ffn_factor": 2}
    return replace(shape, **small, words="few", scale=Shape.scale)
