"""A window is kept, retried at a higher temperature, or skipped as silence."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin

from experiments.common.models.scripted import END, TIME, VOCABULARY
from specwhisper.options import CompressionRatio, DecodingOptions
from specwhisper.transcription.fallback import (
    avg_logprob,
    judge,
    text_compression_ratio,
    token_compression_ratio,
)
from specwhisper.transcription.sequential_windows import SequentialWindows
from specwhisper.types import Outcome

KEPT, RETRIED, SKIPPED = Outcome


@given(st.lists(st.integers(0, 50_000), min_size=1, max_size=60), st.integers(50_001, 52_000))
def test_the_compression_ratio_of_tokens_equals_that_of_transformers(tokens: list[int], size: int):
    expected = WhisperGenerationMixin._retrieve_compression_ratio(torch.tensor(tokens), size)
    assert token_compression_ratio(tokens, size) == expected


def test_the_compression_ratio_of_text_is_that_of_openai_whisper():
    assert text_compression_ratio(" ha" * 100) == pytest.approx(299 / 14, rel=0.3)
    assert text_compression_ratio("") == text_compression_ratio("  ") == 0.0


def test_the_mean_log_probability_of_no_tokens_is_0():
    assert avg_logprob([]) == 0.0
    assert avg_logprob([-1.0, -3.0]) == -2.0


@pytest.mark.parametrize(
    ("options", "log_prob", "no_speech_prob", "expected"),
    [
        ({}, -9.0, 1.0, KEPT),
        ({"logprob_threshold": -1.0}, -0.9, 1.0, KEPT),
        ({"logprob_threshold": -1.0}, -1.1, 1.0, RETRIED),
        ({"no_speech_threshold": 0.6}, -0.1, 0.7, SKIPPED),
        ({"no_speech_threshold": 0.6}, -0.1, 0.5, KEPT),
        ({"no_speech_threshold": 0.6}, -0.1, None, KEPT),
        ({"no_speech_threshold": 0.6, "logprob_threshold": -1.0}, -0.9, 0.7, KEPT),
        ({"no_speech_threshold": 0.6, "logprob_threshold": -1.0}, -1.1, 0.7, SKIPPED),
        ({"no_speech_threshold": 0.6, "logprob_threshold": -1.0}, -1.1, 0.5, RETRIED),
        ({"compression_ratio_threshold": 1.35}, -0.1, 0.0, RETRIED),
        ({"compression_ratio_threshold": 9.0}, -0.1, 0.0, KEPT),
        (
            {"compression_ratio_threshold": 2.4, "compression_ratio_of": CompressionRatio.TEXT},
            -0.1,
            0.0,
            RETRIED,
        ),
    ],
)
def test_the_outcome_follows_from_the_thresholds(options, log_prob, no_speech_prob, expected):
    tokens = [TIME, *[1, 2] * 20, END]
    log_probs = [log_prob] * len(tokens)
    outcome = judge(tokens, log_probs, no_speech_prob, DecodingOptions.greedy(**options), VOCABULARY)
    assert outcome is expected


def test_temperatures_are_tried_in_order_and_the_last_is_kept():
    options = DecodingOptions.greedy(temperatures=(0.0, 0.4, 0.8), logprob_threshold=-1.0)
    windows = SequentialWindows(VOCABULARY, options)
    tokens, bad = [TIME, 1, END], [-2.0] * 3
    tried = []
    for _ in range(3):
        window = windows.open(3000)
        tried.append((window.id, window.start_frame, window.temperature, window.attempt))
        closed = windows.close(window, tokens, bad)
    assert tried == [(0, 0, 0.0, 0), (1, 0, 0.4, 1), (2, 0, 0.8, 2)]
    assert closed.outcome is KEPT
    assert windows.next_frame == 3000
    assert windows.open(3000).temperature == 0.0


def test_a_window_of_silence_is_skipped_as_a_whole():
    windows = SequentialWindows(VOCABULARY, DecodingOptions.greedy(no_speech_threshold=0.5))
    tokens = [TIME, 1, TIME + 100, TIME + 100, 2]
    closed = windows.close(windows.open(2000), tokens, [-1.0] * 5, 0.9)
    assert (closed.outcome, closed.segments, closed.opening) == (SKIPPED, (), ())
    assert windows.next_frame == 2000


@pytest.mark.parametrize("end", [[], [END]])
def test_discarded_tokens_are_reused_with_the_next_windows_timestamps(end):
    windows = SequentialWindows(VOCABULARY, DecodingOptions.greedy())
    tokens = [TIME, 1, TIME + 100, TIME + 100, 2, 3, TIME + 150, 4, *end]
    closed = windows.close(windows.open(3000), tokens, [-math.log(2)] * len(tokens))
    assert closed.opening == (TIME, 2, 3, TIME + 50, 4)
    assert closed.num_kept == 4  # a hint continues after the first two times
