"""Decoders to time: ours in each precision, and transformers' own, all with random weights."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from specwhisper.model.backends import open_backend
from specwhisper.model.checkpoints.checkpoint import Checkpoint


class Subject(Protocol):
    """A decoder that holds some tokens in each of its slots."""

    def step(self, rows: int, width: int) -> None:
        """Append tokens to the first slots, score each, and roll back."""


class Ours:
    """Slots of a checkpoint in the library that serves its dtype on a CPU."""

    def __init__(self, checkpoint: Checkpoint, *, slots: int, held: int) -> None:
        self._backend = open_backend(checkpoint, slots)
        self._held = held
        sizes = checkpoint.sizes
        shape = slots, sizes.num_mel_bins, 2 * sizes.max_source_positions
        noise = np.random.default_rng(0).standard_normal(shape, np.float32)
        with self._backend.inference():
            self._backend.encode(list(enumerate(noise)))
            self._backend.append(range(slots), [[1] * held] * slots, [1] * slots)

    def step(self, rows: int, width: int) -> None:
        with self._backend.inference():
            self._backend.append(range(rows), [[1] * width] * rows, [width] * rows)
        for slot in range(rows):
            self._backend.rollback(slot, self._held)


class Transformers:
    """The same weights in transformers, float32, as ``generate`` steps them."""

    def __init__(self, model: WhisperForConditionalGeneration, *, held: int) -> None:
        self._model = model
        self._held = held
        config: WhisperConfig = model.config
        self._encoded = BaseModelOutput(torch.randn(1, config.max_source_positions, config.d_model))
        self._cache: Any = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
        self._run(held)

    @torch.inference_mode()
    def _run(self, width: int) -> None:
        self._model(
            encoder_outputs=self._encoded,
            decoder_input_ids=torch.ones(1, width, dtype=torch.long),
            cache=self._cache,
            use_cache=True,
        )

    def step(self, rows: int, width: int) -> None:
        assert rows == 1
        self._run(width)
        self._cache.crop(-width)
