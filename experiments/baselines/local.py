"""The arms without a network: plain transformers, and our two engines in one process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import WhisperForCausalLM, WhisperForConditionalGeneration
from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor
from transformers.utils import logging

from experiments.baselines.measurement import Measurement, keep_text
from experiments.common.audio.samples import Sample
from specwhisper.engine.inline_pair import InlinePair
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.checkpoints.names import resolve
from specwhisper.model.model import WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions
from specwhisper.types import SAMPLE_RATE, WINDOW_FRAMES, Mode


@dataclass(frozen=True, slots=True)
class Models:
    """Names of the models that take part; ``assistant`` is the draft of transformers' assisted generation."""

    target: str
    draft: str
    assistant: str
    gamma: int | None


class Transformers:
    """``generate`` of transformers, greedy, as its users call it.

    Only ``generate`` is timed: features, which our arms compute on the clock, are transformers' for free.
    """

    def __init__(self, models: Models) -> None:
        _be_quiet()
        load: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "sdpa"}
        self._model: Any = WhisperForConditionalGeneration.from_pretrained(resolve(models.target), **load)
        # The decoder alone: it shares the target's encoder, as distil-whisper is meant to be used.
        self._assistant: Any = WhisperForCausalLM.from_pretrained(resolve(models.assistant), **load)
        self._extract: Any = WhisperFeatureExtractor(feature_size=self._model.config.num_mel_bins)
        self._encoder_s = 0.0
        self._encoder_started_s = 0.0
        encoder = self._model.get_encoder()
        encoder.register_forward_pre_hook(self._encoder_starts)
        encoder.register_forward_hook(self._encoder_ends)

    def transcribe(self, sample: Sample, timestamps: bool, assisted: bool) -> Measurement:
        """Transcribe a recording; without timestamps in windows of 30 s, as ours are then."""
        generation = self._model.generation_config
        arguments = {"language": "en", "task": "transcribe"} if generation.is_multilingual else {}
        if assisted:
            arguments["assistant_model"] = self._assistant
        self._encoder_s = wall_s = 0.0
        ids: list[int] = []
        for features in self._features(sample, timestamps):
            started_s = time.perf_counter()
            output = self._model.generate(
                features,
                do_sample=False,
                num_beams=1,
                return_timestamps=timestamps,
                return_segments=timestamps,
                **arguments,
            )
            wall_s += time.perf_counter() - started_s
            if timestamps:
                ids += [int(id_) for segment in output["segments"][0] for id_ in segment["tokens"]]
            else:
                ids += output[0].tolist()
        begin = generation.no_timestamps_token_id + 1
        return Measurement(keep_text(ids, generation.eos_token_id, begin), wall_s, self._encoder_s)

    def _features(self, sample: Sample, timestamps: bool) -> list[torch.Tensor]:
        """Return what ``generate`` is called with: all at once, or 30 s each."""
        samples = np.frombuffer(sample.pcm, "<i2").astype(np.float32) / 32768
        padding = {} if sample.fits_one_window else {"truncation": False, "padding": "longest"}
        extracted = self._extract(samples, sampling_rate=SAMPLE_RATE, return_tensors="pt", **padding)
        features: torch.Tensor = extracted.input_features
        if timestamps or sample.fits_one_window:
            return [features]
        missing = -features.shape[-1] % WINDOW_FRAMES
        return list(torch.nn.functional.pad(features, (0, missing)).split(WINDOW_FRAMES, dim=-1))

    def _encoder_starts(self, *_: Any) -> None:
        self._encoder_started_s = time.perf_counter()

    def _encoder_ends(self, *_: Any) -> None:
        self._encoder_s += time.perf_counter() - self._encoder_started_s


class InOneProcess:
    """Our target and draft, taking turns in one thread."""

    def __init__(self, models: Models, target: Checkpoint, engine: InlinePair) -> None:
        _be_quiet()
        self._models = models
        self._special = target.vocabulary.end_of_text, target.vocabulary.timestamp_begin
        self._engine = engine

    @classmethod
    def of_pair(cls, models: Models) -> InOneProcess:
        """Load both models."""
        target, draft = load_checkpoint(models.target), load_checkpoint(models.draft)
        engine = InlinePair(
            WhisperModel(target, 1),
            open_draft(draft, 1, target.vocabulary),
            mode=Mode.ONE_PROCESS,
            gamma=models.gamma,
            max_new_tokens=target.max_new_tokens,
        )
        return cls(models, target, engine)

    def transcribe(self, sample: Sample, timestamps: bool) -> Measurement:
        """Transcribe a recording."""
        options = DecodingOptions.greedy(language="en", timestamps=timestamps, log_mel_max=sample.log_mel_max)
        started_s = time.perf_counter()
        (transcript,) = self._engine.transcribe([sample.pcm], options)
        wall_s = time.perf_counter() - started_s
        ids = (token for segment in transcript.segments for token in segment.tokens)
        statistics = transcript.stats
        return Measurement(keep_text(ids, *self._special), wall_s, statistics.encode_ns / 1e9, statistics)

    def special(self) -> tuple[int, int]:
        """Return the target's ids that are neither text nor timestamps: first, one past the last."""
        return self._special

    def describe(self) -> dict[str, Any]:
        """Return name, digest and shape of every model that takes part."""
        return {role: _facts(getattr(self._models, role)) for role in ("target", "draft", "assistant")}


def _facts(name: str) -> dict[str, Any]:
    checkpoint = load_checkpoint(name)
    sizes = checkpoint.sizes
    return {
        "name": name,
        "weights_digest": checkpoint.weights_digest,
        "d_model": sizes.d_model,
        "encoder_layers": sizes.encoder_layers,
        "decoder_layers": sizes.decoder_layers,
        "vocabulary": sizes.vocab_size,
        "dtype": checkpoint.dtype,
    }


def _be_quiet() -> None:
    """Keep transformers off the terminal, which shows our own progress."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
