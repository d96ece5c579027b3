"""Each window starts where the text of the last one ends, after a prompt; it is kept, retried, or skipped."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin

from experiments.common.models.scripted import END, TIME, VOCABULARY
from specwhisper.errors import UnsupportedOption
from specwhisper.options import CompressionRatio, DecodingOptions
from specwhisper.transcription.prompting import PreviousText, PromptText
from specwhisper.transcription.sequential_windows import SequentialWindows
from specwhisper.transcription.windows import (
    MaxLength,
    avg_logprob,
    judge,
    text_compression_ratio,
    token_compression_ratio,
)
from specwhisper.types import Outcome, Window


def windows(**kwargs) -> SequentialWindows:
    return SequentialWindows(VOCABULARY, DecodingOptions.greedy(), **kwargs)


def test_windows_are_numbered_and_start_where_the_last_one_ended():
    made = windows()
    first = made.open(3000)
    assert first == Window(0, 0, 3000, prompt=(END + 1,), max_new_tokens=63)
    made.close(first, [TIME, 1, TIME + 100, TIME + 100, 2, END])
    second = made.open(3000)
    assert (second.id, second.start_frame) == (1, 200)
    made.close(second, [TIME, 1, END])
    assert made.next_frame == 3200


@pytest.mark.parametrize(
    ("asked", "own", "expected"),
    [
        (None, None, 63),
        (None, 20, 20),
        (10, 20, 10),
        (30, 20, 30),
        (100, 20, 63),
        (None, MaxLength(20), 20),
        (None, MaxLength(448), 63),
        (10, MaxLength(20), 10),
    ],
)
def test_the_callers_token_limit_precedes_the_models_and_fits_the_context(asked, own, expected):
    options = DecodingOptions.greedy(max_new_tokens=asked)
    made = SequentialWindows(VOCABULARY, options, max_new_tokens=own)
    assert made.open(3000).max_new_tokens == expected


def test_the_prompt_of_each_window_is_added_to_a_max_length_also_where_another_target_continues():
    made = SequentialWindows(VOCABULARY, DecodingOptions.greedy(), max_new_tokens=MaxLength(60))
    assert [made.open(3000).max_new_tokens for _ in range(5)] == [60, 61, 62, 63, 63]
    made.resume(Window(7, 500, 3000, prompt=(END + 1,), max_new_tokens=40))
    opened = [made.open(3000) for _ in range(2)]
    assert [(each.id, each.start_frame, each.max_new_tokens) for each in opened] == [
        (8, 500, 41),
        (9, 500, 42),
    ]


def test_a_long_prompt_may_leave_none_of_a_small_max_length():
    words = PromptText(initial=(0,) * 30)
    vocabulary = replace(VOCABULARY, max_length=64)
    with pytest.raises(UnsupportedOption, match="leaves none of the 32 that this model's max_length allows"):
        SequentialWindows(vocabulary, DecodingOptions.greedy(), words, max_new_tokens=MaxLength(1)).open(3000)


def test_a_prompt_that_fills_the_window_is_refused():
    with pytest.raises(UnsupportedOption, match="prompt has 1 tokens, but a window of this model holds 1"):
        SequentialWindows(replace(VOCABULARY, max_length=1), DecodingOptions.greedy())


KEPT, RETRIED, SKIPPED = Outcome


@given(st.lists(st.integers(0, 50_000), min_size=1, max_size=60), st.integers(50_001, 52_000))
def test_the_compression_ratio_of_tokens_equals_that_of_transformers(tokens: list[int], size: int):
    expected = WhisperGenerationMixin._retrieve_compression_ratio(torch.tensor(tokens), size)
    assert token_compression_ratio(tokens, size) == expected


def test_the_ratio_and_the_mean_of_texts_are_those_of_openai_whisper():
    assert text_compression_ratio(" ha" * 100) == pytest.approx(299 / 14, rel=0.3)
    assert text_compression_ratio("") == text_compression_ratio("  ") == avg_logprob([]) == 0.0
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
    windows = SequentialWindows(VOCABULARY, options, max_new_tokens=MaxLength(20))
    tokens, bad = [TIME, 1, END], [-2.0] * 3
    tried = []
    for _ in range(3):
        window = windows.open(3000)
        tried.append((window.id, window.start_frame, window.temperature, window.attempt))
        assert window.max_new_tokens == 20, "it grows with each window, and not with an attempt"
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


PREV = VOCABULARY.start_of_prev
START = VOCABULARY.start_of_transcript
NOTHING = PromptText()
WORDS = PromptText(initial=(1, 2))
WITH_HOTWORDS = PromptText(initial=(1, 2), hotwords=(9,))


def previous(words: PromptText = NOTHING, *, condition: bool = True) -> PreviousText:
    return PreviousText(VOCABULARY, words, condition=condition)


def test_text_is_kept_with_its_timestamps_and_doubled_ones_once():
    made = previous()
    assert made.prefix() == previous(condition=False).prefix() == ()
    made.append([[TIME, 3, TIME + 5], [TIME + 5, 4, TIME + 9, TIME + 9], [TIME + 9, 5]], 0.0)
    assert made.prefix() == (PREV, TIME, 3, TIME + 5, TIME + 5, 4, TIME + 9, TIME + 9, 5)


@pytest.mark.parametrize("num_given", [1, 16, 20, 31])
@pytest.mark.parametrize("is_carried", [True, False])
def test_words_that_stay_leave_every_window_room_to_write_in(num_given, is_carried):
    given = tuple([5] * num_given)
    words = PromptText(initial=given, is_carried=True) if is_carried else PromptText(hotwords=given)
    options = DecodingOptions.greedy(condition_on_previous_text=True)
    windows = SequentialWindows(VOCABULARY, options, words)
    for _ in range(4):
        window = windows.open(3000)
        assert window.prompt[: 1 + num_given] == (PREV, *given)
        assert window.max_new_tokens >= VOCABULARY.max_length // 4 - 4
        windows.close(window, [TIME, *[3] * 10, TIME + 1500, END])
    assert len(window.prompt) == 1 + num_given + min(31, 47 - num_given) + 1


LONG = [3] * 100
CARRIED = replace(WITH_HOTWORDS, is_carried=True)


@pytest.mark.parametrize(
    ("words", "condition", "windows", "expected"),
    [
        (NOTHING, True, [([3], 0.6)], ()),
        (NOTHING, True, [([3], 0.6), ([4], 0.4)], (PREV, 3, 4)),
        (NOTHING, True, [([], 0.0)], (PREV,)),  # an empty window counts
        (WORDS, True, [], (PREV, 1, 2)),
        (WORDS, True, [([3], 0.0)], (PREV, 1, 2, 3)),
        (WORDS, True, [(LONG, 0.0)], (PREV, *[3] * (VOCABULARY.max_length // 2 - 1))),
        (WORDS, False, [([3], 0.0)], (PREV, 1, 2)),
        (CARRIED, True, [], (PREV, 9, 1, 2)),
        (CARRIED, True, [(LONG, 0.0)], (PREV, 9, 1, 2, *[3] * 31)),
        (WITH_HOTWORDS, True, [], (PREV, 9, 1, 2)),
    ],
)
def test_words_and_text_of_windows_make_a_prompt(words, condition, windows, expected):
    made = previous(words, condition=condition)
    for tokens, temperature in windows:
        made.append([tokens], temperature)
    assert made.prefix() == expected


def test_another_target_continues_with_the_previous_text():
    made, other = previous(WORDS), previous(WORDS)
    made.append([[3, 4]], 0.0)
    other.resume(made.tokens)
    assert other.prefix() == made.prefix()


@pytest.mark.parametrize("is_carried", [True, False])
@pytest.mark.parametrize(
    ("initial", "hotwords", "expected"),
    [
        (range(40), (), range(9, 40)),  # as openai/whisper: the last ones
        (range(31), (99,), (99, *range(1, 31))),
        ((7,), range(40), range(9, 40)),
        (range(40), range(31), range(31)),
    ],
)
def test_of_a_prompt_that_is_too_long_the_last_tokens_count(initial, hotwords, expected, is_carried):
    words = PromptText(tuple(initial), tuple(hotwords), is_carried)
    for condition in (False, True):
        made = previous(words, condition=condition)
        assert made.prefix() == (PREV, *expected)


def test_a_model_without_prompts_refuses_them():
    with pytest.raises(UnsupportedOption, match="takes no prompt"):
        PreviousText(replace(VOCABULARY, start_of_prev=None), WORDS, condition=False)
