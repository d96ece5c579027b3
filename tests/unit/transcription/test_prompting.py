"""The prompt of a window: the caller's words and the text before it."""

from dataclasses import replace

import pytest

from experiments.common.models.scripted import END, TIME, VOCABULARY
from specwhisper.errors import UnsupportedOption
from specwhisper.options import DecodingOptions
from specwhisper.transcription.prompting import PreviousText, PromptText
from specwhisper.transcription.sequential_windows import SequentialWindows

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
    made.append([[TIME, 3, TIME + 5], [TIME + 5, 4, TIME + 9, TIME + 9]], 0.0)
    assert made.prefix() == (PREV, TIME, 3, TIME + 5, TIME + 5, 4, TIME + 9)


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


def test_the_prompt_takes_room_from_the_window():
    windows = SequentialWindows(VOCABULARY, DecodingOptions.greedy(condition_on_previous_text=True))
    first = windows.open(3000)
    assert (first.prompt, first.max_new_tokens) == ((START,), 63)
    windows.close(first, [TIME, 3, END], [-0.1] * 3)
    second = windows.open(3000)
    assert second.prompt == (PREV, TIME, 3, START)
    assert second.max_new_tokens == 60
