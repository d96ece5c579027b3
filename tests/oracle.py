"""What plain ``transformers`` writes: the reference that every mode of ours must equal, token for token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList, WhisperForConditionalGeneration
from transformers.models.whisper.feature_extraction_whisper import WhisperFeatureExtractor

from specwhisper.transcription.transcript import Transcript
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES, DecodingOptions

TIE_MARGIN = 1e-4  # below it two float32 programs may rightly choose differently


@dataclass(frozen=True)
class OracleWindow:
    """One window: where it starts, its tokens as generated (end-of-text included), each one's margin."""

    start_frame: int
    tokens: tuple[int, ...]
    margins: tuple[float, ...]

    @property
    def ties(self) -> list[int]:
        """Positions at which the oracle itself was undecided."""
        return [position for position, margin in enumerate(self.margins) if margin < TIE_MARGIN]


@dataclass(frozen=True)
class OracleText:
    """What transformers makes of a recording; segments are (start in s, end in s, tokens)."""

    windows: list[OracleWindow] = field(default_factory=list)
    segments: list[tuple[float, float, tuple[int, ...]]] = field(default_factory=list)

    @property
    def window_tokens(self) -> list[tuple[int, ...]]:
        """Each window's tokens, as ``Transcript.window_tokens`` has them."""
        return [window.tokens for window in self.windows]


class _Margins(LogitsProcessor):
    """Stands behind Whisper's own processors and notes how clear each choice is; changes nothing."""

    def __init__(self, max_windows: int) -> None:
        self.windows: list[list[float]] = []
        self._max_windows = max_windows
        self._last_length = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        length = input_ids.shape[1]
        if not self.windows or length <= self._last_length:
            self.windows.append([])
        if len(self.windows) > self._max_windows:
            raise RuntimeError(f"This recording takes more than {self._max_windows} windows: choose another.")
        self._last_length = length
        best, second = scores[0].topk(2).values.tolist()
        self.windows[-1].append(best - second)
        return scores


def transcribe(
    model: WhisperForConditionalGeneration,
    pcm: bytes,
    options: DecodingOptions,
    *,
    max_windows: int = 40,
) -> OracleText:
    """Transcribe canonical PCM by ``model.generate``: greedy, no fallback, no earlier text as a prompt."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
    is_long = len(samples) > WINDOW_SAMPLES
    extractor = WhisperFeatureExtractor(feature_size=model.config.num_mel_bins)
    padding = {"truncation": False, "padding": "longest"} if is_long else {}
    features = extractor(samples, sampling_rate=SAMPLE_RATE, return_tensors="pt", **padding).input_features
    multilingual = getattr(model.generation_config, "is_multilingual", False)
    margins = _Margins(max_windows)
    frames: list[int] = []
    with torch.inference_mode():
        output = model.generate(
            features.to(model.dtype),
            do_sample=False,
            num_beams=1,
            temperature=0.0,
            condition_on_prev_tokens=False,
            return_timestamps=options.timestamps,
            return_segments=True,
            max_new_tokens=options.max_new_tokens,
            logits_processor=LogitsProcessorList([margins]),
            monitor_progress=lambda progress: frames.append(int(progress[0, 0])),
            **({"language": options.language, "task": str(options.task)} if multilingual else {}),
        )
    results: list[torch.Tensor] = []
    segments = []
    for segment in output["segments"][0]:
        if not results or segment["result"] is not results[-1]:
            results.append(segment["result"])
        segments.append((float(segment["start"]), float(segment["end"]), tuple(segment["tokens"].tolist())))
    windows = [
        OracleWindow(frame, tuple(result[len(result) - len(steps) :].tolist()), tuple(steps))
        for frame, result, steps in zip(frames, results, margins.windows, strict=True)
    ]
    return OracleText(windows, segments)


def assert_equal(texts: Sequence[Transcript], oracles: Sequence[OracleText]) -> None:
    """Compare tokens exactly and times to the 10 ms that ours are rounded to."""
    for text, expected in zip(texts, oracles, strict=True):
        assert text.window_tokens == expected.window_tokens
        spoken = [segment for segment in expected.segments if segment[2]]
        assert [segment.tokens for segment in text.segments] == [tokens for _, _, tokens in spoken]
        for ours, (start_s, end_s, _) in zip(text.segments, spoken, strict=True):
            assert (ours.start_s, ours.end_s) == pytest.approx((start_s, end_s), abs=0.0051)
