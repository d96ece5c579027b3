"""Random weights of published shapes, built on the measured device."""

from __future__ import annotations

import copy
import gc
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import WhisperConfig, WhisperForConditionalGeneration

from experiments.common.models.checkpoints import Shape, build_model, checkpoint_from_model, with_noise
from experiments.common.models.published import LARGE_V3, PUBLISHED
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.checkpoints.sizes import read_sizes
from specwhisper.model.pytorch.decoder import CachedDecoder, load_decoder_weights

SHAPES = {
    "large-v3": LARGE_V3,
    "turbo": PUBLISHED["turbo"],
    "distil-large-v3": replace(LARGE_V3, decoder_layers=2),
    "tiny": PUBLISHED["tiny"],
}


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
        """Wait until the device is idle."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)


class Weights:
    """One shape's weights in float32 and other types.

    Attributes
    ----------
    shape : the sizes, reduced on a CPU.
    scale : standard deviation of the weights.
    """

    def __init__(self, name: str, place: Place) -> None:
        shape = replace(SHAPES[name], words="made-up", seed=place.seed)
        if place.is_narrow:
            shape = _narrow(shape)
        self.name = name
        self.shape = shape
        self.place = place
        self.scale = shape.scale
        with place.device:
            model, self.tokens = build_model(shape)
        self._models = {"float32": model}

    @property
    def config(self) -> WhisperConfig:
        """Configuration of the shape."""
        return self._models["float32"].config

    def model_of(self, dtype: str) -> WhisperForConditionalGeneration:
        """Return a transformers model in a type."""
        if dtype not in self._models:
            self._models[dtype] = copy.deepcopy(self._models["float32"]).to(getattr(torch, dtype))
        return self._models[dtype]

    def on(self, device: str) -> Weights:
        """Return the weights on another device, in float32."""
        there = copy.copy(self)
        there.place = replace(self.place, device=torch.device(device))
        there._models = {"float32": copy.deepcopy(self._models["float32"]).to(device)}
        return there

    def checkpoint(self, dtype: str, *, noise: float = 0.0) -> Checkpoint:
        """Return a checkpoint in a type; with noise, that of a draft that is often right.

        Parameters
        ----------
        noise : noise relative to the weights.
        """
        model = self.model_of(dtype)
        if noise:
            model = with_noise(self.model_of("float32"), noise * self.scale).to(getattr(torch, dtype))
        return checkpoint_from_model(model, self.tokens, name=f"random {self.name}")

    def decoder(
        self, dtype: str, num_slots: int, *, cross_cache: str | None = None, has_static_shapes: bool = True
    ) -> CachedDecoder:
        """Return a decoder with slots."""
        state: dict[str, Tensor] = self.model_of(dtype).state_dict()
        with torch.device("meta"):
            decoder = CachedDecoder(read_sizes(self.name, self.config.to_dict()), num_slots)
        load_decoder_weights(decoder, state)
        decoder.eval().requires_grad_(False)
        decoder.tie()
        decoder.allocate(has_static_shapes=has_static_shapes, cross_cache_dtype=cross_cache)
        return decoder

    def encodings(self, num_windows: int, dtype: str, *, seed: int = 0) -> Tensor:
        """Return random encoder outputs: windows x positions x d_model."""
        generator = torch.Generator(self.place.device).manual_seed(self.place.seed + seed)
        size = (num_windows, self.config.max_source_positions, self.config.d_model)
        return torch.randn(size, generator=generator, device=self.place.device).to(getattr(torch, dtype))


def _narrow(shape: Shape) -> Shape:
    """Reduce a shape's size; keep what else distinguishes it."""
    return replace(
        shape,
        d_model=64,
        heads=2,
        encoder_layers=1,
        decoder_layers=min(shape.decoder_layers, 3),
        ffn_factor=2,
        words="few",
        scale=Shape.scale,
    )
