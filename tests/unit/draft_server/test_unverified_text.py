"""Draft-only text is proposed to the target that decodes the same audio."""

from __future__ import annotations

from experiments.common.models.scripted import END, TIME
from experiments.common.models.speech import SPOKEN
from specwhisper.types import Commit, Limits, Window, WindowOpened
from specwhisper_draft_server.sessions.draft_only import UnverifiedText

LIMITS = Limits(max_block_tokens=3, max_ahead_tokens=8)


def window(number: int, start_frame: int, num_frames: int, max_new_tokens: int = 40) -> Window:
    return Window(number, start_frame, num_frames, (SPOKEN.start_of_transcript,), max_new_tokens)


def written(*texts: tuple[Window, tuple[int, ...]]) -> UnverifiedText:
    text = UnverifiedText()
    for place, tokens in texts:
        text.observe(WindowOpened(place))
        for base, token in enumerate(tokens):
            text.observe(Commit(place.id, base, (token,), is_final=base + 1 == len(tokens)))
    return text


def candidates(text: UnverifiedText, place: Window) -> list[tuple[int, tuple[int, ...]]]:
    blocks = text.candidates(place, SPOKEN, LIMITS)
    assert all((block.window_id, block.known_committed, block.number) == (place.id, 0, 0) for block in blocks)
    return [(block.base, block.tokens) for block in blocks]


def test_the_text_of_the_same_audio_is_proposed():
    text = written((window(3, 500, 200), (TIME, 1, 2, TIME + 9, END)))
    assert candidates(text, window(0, 500, 200)) == [(0, (TIME, 1, 2)), (3, (TIME + 9, END))]


def test_without_its_ending_if_the_window_is_longer():
    text = written((window(3, 500, 200), (TIME, 1, 2, TIME + 9, END)))
    assert candidates(text, window(0, 500, 300)) == [(0, (TIME, 1, 2))]
    assert candidates(text, window(0, 400, 200)) == []


def test_the_last_text_of_a_start_frame_counts():
    text = written((window(3, 500, 100), (TIME, 1, END)), (window(4, 500, 200), (TIME, 1, 2, 3, END)))
    assert candidates(text, window(0, 500, 250)) == [(0, (TIME, 1, 2)), (3, (3,))]


def test_no_more_is_proposed_than_the_target_takes():
    text = written((window(3, 500, 100), (*range(12), END)))
    assert [token for _, tokens in candidates(text, window(0, 500, 100)) for token in tokens] == [*range(8)]
    assert candidates(text, window(0, 500, 100, max_new_tokens=2)) == [(0, (0, 1))]


def test_text_of_an_open_window_is_not_proposed():
    text = written((window(3, 500, 100), (1, 2, END)))
    text.observe(WindowOpened(window(4, 700, 100)))
    text.observe(Commit(4, 0, (5,)))
    assert candidates(text, window(0, 700, 100)) == []
