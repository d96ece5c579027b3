"""What is timed: our decoder in each precision, and transformers' own, all with random weights."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from specwhisper.model.decoder import CachedDecoder, load_decoder_weights
from specwhisper.model.sizes import read_sizes

PROMPT = 4  # tokens that no step is timed on


class Subject(Protocol):
    """A decoder that holds some tokens in each of its slots."""

    def step(self, rows: int, width: int) -> None:
        """Append tokens to the first slots, score each, and roll back."""


class Ours:
    """The decoder over slots; a draft's tokens need not have the same bits in any company."""

    def __init__(
        self,
        model: WhisperForConditionalGeneration,
        dtype: str,
        *,
        slots: int,
        held: int,
        is_draft: bool = False,
    ) -> None:
        is_int8 = dtype == "int8"
        type_ = torch.float32 if is_int8 else getattr(torch, dtype)
        state = {key: value.to(type_) for key, value in model.state_dict().items() if ".encoder." not in key}
        with torch.device("meta"):
            self._decoder = CachedDecoder(read_sizes("random", model.config.to_dict()), slots)
        load_decoder_weights(self._decoder, state)
        self._decoder.eval().requires_grad_(False)
        self._decoder.tie()
        self._decoder.pack(is_int8=is_int8, is_draft=is_draft)
        self._decoder.allocate()
        self._held = held
        encoded = torch.randn(model.config.max_source_positions, model.config.d_model, dtype=type_)
        for slot in range(slots):
            self._decoder.prefill_audio(slot, encoded)
        self._decoder.append(range(slots), [[1] * held] * slots, [1] * slots)

    def step(self, rows: int, width: int) -> None:
        """Append, score, roll back."""
        self._decoder.append(range(rows), [[1] * width] * rows, [width] * rows)
        for slot in range(rows):
            self._decoder.rollback(slot, self._held)


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
        """Append, score, crop; one row only."""
        self._run(width)
        self._cache.crop(-width)
