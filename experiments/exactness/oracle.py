"""The oracle: plain ``transformers``, whose tokens each of our modes must equal."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)
from transformers.generation.logits_process import WhisperNoSpeechDetection
from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor
from transformers.utils import logging

from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.model import Model
from specwhisper.model.sampling import gumbel, position_key, window_key
from specwhisper.options import CompressionRatio, DecodingOptions, Padding
from specwhisper.transcription.windows import text_compression_ratio
from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, WINDOW_SAMPLES


class Steered:
    """A target that chooses as its model does, but at the oracle's ties as the oracle did.

    Parameters
    ----------
    oracles : texts by the number of samples of their recording.

    Attributes
    ----------
    num_steered : choices at which the model, undecided as the oracle was, chose differently.
    margins : how far a choice was ahead of the second best, by the recording's samples and the window's
        tokens before it; of several windows that begin alike, the least.
    """

    def __init__(self, model: Model, oracles: Mapping[int, OracleText]) -> None:
        self.num_steered = 0
        self.margins: dict[tuple[int, tuple[int, ...]], float] = {}
        self._model = model
        self._windows = [(0, 0)] * model.num_slots  # samples of each slot's recording, first frame
        self._choices = {
            (samples, window.start_frame, window.tokens[:position]): window.tokens[position]
            for samples, text in oracles.items()
            for window in text.windows
            for position in window.ties
        }

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def encode(self, slot: int, recording: Recording, start_frame: int) -> None:
        self._windows[slot] = recording.received_samples, start_frame
        self._model.encode(slot, recording, start_frame)

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        scores = self._model.score(rows)
        for row, score in zip(rows, scores, strict=True):
            samples, start_frame = self._windows[row.slot]
            for i, (token, margin) in enumerate(zip(score.tokens, score.margins, strict=True)):
                prefix = (*row.generated, *row.candidates[:i])
                self.margins[samples, prefix] = min(margin, self.margins.get((samples, prefix), margin))
                choice = self._choices.get((samples, start_frame, prefix), token)
                self.num_steered += choice != token
                score.tokens[i] = choice
        return scores


TIME_STEP_S = 0.02
TIE_MARGIN = 1e-4  # below it two float32 programs may rightly choose differently

logging.set_verbosity_error()  # generate warns of max_length once a window


@dataclass(frozen=True)
class OracleWindow:
    """A window that was kept, with its last decoding; ``None`` is what it was not judged by."""

    start_frame: int
    tokens: tuple[int, ...]  # end-of-text included
    margins: tuple[float, ...]
    avg_logprob: float | None = None
    no_speech_prob: float | None = None

    @property
    def ties(self) -> list[int]:
        """Positions at which the oracle itself was undecided."""
        return [position for position, margin in enumerate(self.margins) if margin < TIE_MARGIN]


@dataclass(frozen=True)
class OracleSegment:
    """A segment; ``ends_s`` are the ends of its tokens, if word times were requested."""

    start_s: float
    end_s: float
    tokens: tuple[int, ...]
    ends_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class OracleText:
    windows: list[OracleWindow] = field(default_factory=list)
    segments: list[OracleSegment] = field(default_factory=list)
    num_skipped: int = 0  # windows without speech
    num_attempts: int = 0  # decodings in all, failed ones included
    language_probs: dict[str, float] = field(default_factory=dict)  # by code, if it was detected

    @property
    def window_tokens(self) -> tuple[tuple[int, ...], ...]:
        """Each window's tokens, as ``Transcription.window_tokens`` has them."""
        return tuple(window.tokens for window in self.windows)


class TooManyWindows(Exception):
    """A decoding goes round in circles."""


class Watch(LogitsProcessor):
    """Runs after Whisper's own processors, notes what they choose, and changes nothing.

    ``attempts`` are those of the open window, each a list of margins.
    """

    def __init__(self, max_windows: int) -> None:
        self.attempts: list[list[float]] = []
        self.windows: list[OracleWindow] = []
        self.num_skipped = self.num_attempts = 0
        self.language_probs: dict[str, float] = {}
        self._avg_logprob: float | None = None
        self._no_speech_prob: float | None = None
        self.start_frame = 0
        self._max_windows = max_windows
        self._last_length = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        length = input_ids.shape[1]
        if not self.attempts or length <= self._last_length:
            self.attempts.append([])
        self._last_length = length
        best, second = scores[0].topk(2).values.tolist()
        self.attempts[-1].append(best - second)
        return scores

    def noting(self, model: WhisperForConditionalGeneration) -> Any:
        """Patch a model: note windows, what came of them and why, and languages' probabilities."""
        decode, average = model.generate_with_fallback, model._retrieve_avg_logprobs
        judge, detect = model._need_fallback, model.detect_language

        def decoded(*args: Any, **kwargs: Any) -> Any:
            if len(self.windows) + self.num_skipped == self._max_windows:
                raise TooManyWindows(f"over {self._max_windows} windows")
            self.start_frame, self.attempts = int(kwargs["seek"][0]), []
            self._avg_logprob = self._no_speech_prob = None
            answer = decode(*args, **kwargs)
            output, is_skipped = answer[1][0], answer[2][0]
            sequence = output if isinstance(output, torch.Tensor) else output["sequences"]
            tokens = tuple(sequence[kwargs["decoder_input_ids"].shape[-1] :].tolist())
            self.num_attempts += len(self.attempts)
            self.num_skipped += bool(is_skipped)
            if not is_skipped:
                judged_by = self._avg_logprob, self._no_speech_prob
                self.windows.append(
                    OracleWindow(self.start_frame, tokens, tuple(self.attempts[-1]), *judged_by)
                )
            return answer

        def averaged(*args: Any) -> Any:
            answer = average(*args)
            self._avg_logprob = float(answer)
            return answer

        def judged(sequence: Any, outputs: Any, index: int, processors: Any, *rest: Any) -> Any:
            for processor in processors:
                if isinstance(processor, WhisperNoSpeechDetection):
                    self._no_speech_prob = float(processor.no_speech_prob[index])
            return judge(sequence, outputs, index, processors, *rest)

        def detected(*args: Any, **kwargs: Any) -> Any:
            answer, features = detect(*args, **kwargs), kwargs["input_features"][:, :, : 2 * 1500]
            start = torch.tensor([[model.generation_config.decoder_start_token_id]])
            logits = model(input_features=features, decoder_input_ids=start, use_cache=False).logits[0, -1]
            ids = model.generation_config.lang_to_id
            probs = logits[list(ids.values())].softmax(-1).tolist()
            self.language_probs = {token.strip("<|>"): p for token, p in zip(ids, probs, strict=True)}
            assert ids[max(ids, key=lambda token: self.language_probs[token.strip("<|>")])] == answer[0]
            return answer

        return patch.multiple(
            model,
            generate_with_fallback=decoded,
            _retrieve_avg_logprobs=averaged,
            _need_fallback=judged,
            detect_language=detected,
        )

    def draw(self, seed: int, probs: torch.Tensor) -> torch.Tensor:
        attempt, position = len(self.attempts) - 1, len(self.attempts[-1]) - 1
        window = window_key(seed, self.start_frame * HOP_SAMPLES, attempt)
        noise = gumbel([position_key(window, position)], probs.shape[-1], probs.device)
        best = (probs.log() + noise).topk(2, dim=-1)
        self.attempts[-1][-1] = float(best.values[0, 0] - best.values[0, 1])
        return best.indices[:, :1]


def transcribe(
    model: WhisperForConditionalGeneration,
    pcm: bytes,
    options: DecodingOptions,
    *,
    tokenizer: WhisperTokenizer | None = None,
    max_windows: int = 40,
    **arguments: Any,
) -> OracleText:
    """Transcribe canonical PCM by ``model.generate``, one beam, with further ``arguments``.

    ``tokenizer`` is needed for prompts and for the compression ratio of text.
    """
    features, mask = features_of(pcm, model.config.num_mel_bins, options.padding)
    generation = model.generation_config
    watch = Watch(max_windows)
    with torch.inference_mode(), ExitStack() as patches, warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"std\(\): degrees of freedom")  # word times of a single token
        patches.enter_context(watch.noting(model))
        patches.enter_context(
            patch("torch.multinomial", lambda probs, num_samples: watch.draw(options.seed, probs))
        )
        if options.compression_ratio_of is CompressionRatio.TEXT and tokenizer is not None:
            patches.enter_context(_ratio_of_text(model, tokenizer))
        if options.padding is Padding.ZERO:
            extent = staticmethod(lambda **_: (1, int(mask.sum())))
            patches.enter_context(patch.object(type(model), "_retrieve_total_input_frames", extent))
        if options.max_initial_timestamp_s is not None:
            index = round(options.max_initial_timestamp_s / TIME_STEP_S)
            patches.enter_context(patch.object(generation, "max_initial_timestamp_index", index))
        output = model.generate(
            features.to(model.dtype),
            attention_mask=mask if options.word_timestamps else None,
            num_beams=1,
            temperature=options.temperatures,
            top_k=options.top_k,
            top_p=options.top_p,
            return_timestamps=options.timestamps,
            return_segments=True,
            return_token_timestamps=options.word_timestamps or None,
            compression_ratio_threshold=options.compression_ratio_threshold,
            logprob_threshold=options.logprob_threshold,
            no_speech_threshold=options.no_speech_threshold,
            condition_on_prev_tokens=options.condition_on_previous_text,
            logits_processor=LogitsProcessorList([watch]),
            **_prompt(options, tokenizer),
            **({} if options.max_new_tokens is None else {"max_new_tokens": options.max_new_tokens}),
            **_language_and_task(model, options),
            **arguments,
        )
    return OracleText(
        windows=watch.windows,
        segments=[
            OracleSegment(
                float(segment["start"]),
                float(segment["end"]),
                tuple(segment["tokens"].tolist()),
                tuple(segment["token_timestamps"].tolist()) if options.word_timestamps else (),
            )
            for segment in output["segments"][0]
        ],
        num_skipped=watch.num_skipped,
        num_attempts=watch.num_attempts,
        language_probs=watch.language_probs,
    )


def features_of(
    pcm: bytes, num_mel_bins: int, padding: Padding = Padding.SILENCE
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return transformers' input features and the mask of frames with audio.

    For ``ZERO`` they are openai/whisper's, of the audio and 30 s of silence, with 0 after the audio.
    """
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
    num_frames = max(1, len(samples) // HOP_SAMPLES)
    if padding is Padding.ZERO:
        samples = np.pad(samples, (0, WINDOW_SAMPLES))
    is_long = len(samples) > WINDOW_SAMPLES
    extractor = WhisperFeatureExtractor(feature_size=num_mel_bins)
    whole = {"truncation": False, "padding": "longest"} if is_long else {}
    made = extractor(
        samples, sampling_rate=SAMPLE_RATE, return_tensors="pt", return_attention_mask=True, **whole
    )
    if padding is Padding.ZERO:
        made.input_features[:, :, num_frames:] = 0
        return made.input_features, torch.ones(1, num_frames, dtype=torch.int32)
    return made.input_features, made.attention_mask


def _language_and_task(model: WhisperForConditionalGeneration, options: DecodingOptions) -> dict[str, Any]:
    """Return language and task as transformers' arguments.

    They stay out where an old generation config forces them and the options name no language.
    """
    generation = model.generation_config
    if not getattr(generation, "lang_to_id", None):
        return {}
    forced = any(getattr(config, "forced_decoder_ids", None) for config in (generation, model.config))
    named = [getattr(generation, key, None) for key in ("language", "task")]
    if forced and options.language is None and named == [None, None]:
        return {}
    return {"language": options.language, "task": str(options.task)}


def _prompt(options: DecodingOptions, tokenizer: WhisperTokenizer | None) -> dict[str, Any]:
    text = options.initial_prompt or options.hotwords
    if not text or tokenizer is None:
        return {}
    is_carried = bool(options.hotwords) or options.carry_initial_prompt
    carries = is_carried and options.condition_on_previous_text
    return {
        "prompt_ids": torch.tensor(tokenizer.get_prompt_ids(text)),
        "prompt_condition_type": "all-segments" if carries else "first-segment",
    }


def _ratio_of_text(model: WhisperForConditionalGeneration, tokenizer: WhisperTokenizer) -> Any:
    def ratio(tokens: torch.Tensor, vocab_size: int) -> float:
        text = tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text_compression_ratio(text)

    return patch.object(type(model), "_retrieve_compression_ratio", staticmethod(ratio))
