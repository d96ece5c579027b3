"""Each window starts where the text of the last one ends."""

from dataclasses import replace

import pytest

from experiments.common.models.scripted import END, TIME, VOCABULARY
from specwhisper.errors import UnsupportedOption
from specwhisper.options import DecodingOptions
from specwhisper.transcription.prompting import PromptText
from specwhisper.transcription.sequential_windows import SequentialWindows
from specwhisper.transcription.windows import MaxLength
from specwhisper.types import Window


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


def test_a_resumed_window_continues():
    made = windows()
    made.resume(Window(7, 500, 3000, prompt=(END + 1,), max_new_tokens=63))
    assert made.next_frame == 500
    assert made.open(3000).id == 8


@pytest.mark.parametrize(
    ("asked", "own", "expected"),
    [
        (None, None, 63),
        (10, None, 10),
        (None, 20, 20),
        (10, 20, 10),
        (30, 20, 30),
        (100, 20, 63),
        (None, 448, 63),
        (None, MaxLength(20), 20),
        (None, MaxLength(448), 63),
        (10, MaxLength(20), 10),
    ],
)
def test_the_callers_token_limit_precedes_the_models_and_fits_the_context(asked, own, expected):
    options = DecodingOptions.greedy(max_new_tokens=asked)
    made = SequentialWindows(VOCABULARY, options, max_new_tokens=own)
    assert made.open(3000).max_new_tokens == expected


def test_the_prompt_of_each_window_is_added_to_a_max_length():
    made = SequentialWindows(VOCABULARY, DecodingOptions.greedy(), max_new_tokens=MaxLength(60))
    assert [made.open(3000).max_new_tokens for _ in range(5)] == [60, 61, 62, 63, 63]
    made.resume(Window(7, 500, 3000, prompt=(END + 1,), max_new_tokens=40))
    assert [made.open(3000).max_new_tokens for _ in range(2)] == [41, 42]


def test_another_attempt_at_a_window_has_the_same_limit():
    options = DecodingOptions.greedy(temperatures=(0.0, 0.5), logprob_threshold=-1.0)
    made = SequentialWindows(VOCABULARY, options, max_new_tokens=MaxLength(20))
    first = made.open(3000)
    made.close(first, (0, END), [-9.0, -9.0])
    second = made.open(3000)
    assert (second.attempt, second.max_new_tokens) == (1, first.max_new_tokens)


def test_a_long_prompt_may_leave_none_of_a_small_max_length():
    words = PromptText(initial=(0,) * 30)
    vocabulary = replace(VOCABULARY, max_length=64)
    with pytest.raises(UnsupportedOption, match="leaves none of the 32 that this model's max_length allows"):
        SequentialWindows(vocabulary, DecodingOptions.greedy(), words, max_new_tokens=MaxLength(1)).open(3000)


def test_a_prompt_that_fills_the_window_is_refused():
    with pytest.raises(UnsupportedOption, match="prompt has 1 tokens, but a window of this model holds 1"):
        SequentialWindows(replace(VOCABULARY, max_length=1), DecodingOptions.greedy())
