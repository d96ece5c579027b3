"""A transcript grows with a session's messages, however they arrive."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.common.models.scripted import END, TIME, VOCABULARY
from specwhisper.errors import InvalidCandidates
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import Candidates, Commit, Window, WindowOpened

A, B, C, D = range(4)


def opened(window_id: int = 0, start_frame: int = 0) -> WindowOpened:
    return WindowOpened(Window(window_id, start_frame, 3000, (END + 1,), 60))


def commit(base: int, *tokens: int, window_id: int = 0, final: bool = False, prob: float = 0.5) -> Commit:
    log_probs = (log(prob),) * len(tokens)
    return Commit(window_id, base, tokens, log_probs=log_probs, is_final=final)


def candidates(base: int, *tokens: int, window_id: int = 0) -> Candidates:
    return Candidates(window_id, base, 0, tokens)


@pytest.fixture
def builder() -> TranscriptBuilder:
    made = TranscriptBuilder(VOCABULARY)
    assert made.observe(opened()) == []
    return made


@pytest.mark.parametrize(
    ("messages", "verified", "tentative"),
    [
        ([candidates(0, A, B)], "", "ab"),
        ([candidates(0, A, B), commit(0, A)], "a", "b"),
        ([candidates(0, A, B), commit(0, A), candidates(2, C)], "a", "bc"),
        ([candidates(0, A, B, C), commit(0, A, D)], "ad", ""),  # a correction discards the rest
        ([commit(0, A, B), candidates(0, C, D)], "ab", ""),  # before the committed end
        ([commit(0, A, B), candidates(3, C)], "ab", ""),  # after a gap
        ([commit(0, A, window_id=5), candidates(0, B, window_id=5)], "", ""),  # of another window
    ],
)
def test_text_is_verified_or_drafted(builder, messages, verified, tentative):
    for message in messages:
        builder.observe(message)
    assert (builder.verified_text, builder.tentative_text) == (verified, tentative)


def test_an_ended_window_returns_its_segments(builder):
    builder.observe(commit(0, TIME, A, TIME + 50, TIME + 50))
    segments = builder.observe(commit(4, B, TIME + 100, END, final=True, prob=0.25))
    assert [(s.start_s, s.end_s, s.text) for s in segments] == [(0.0, 1.0, "a"), (1.0, 2.0, "b")]
    assert [s.confidence for s in segments] == pytest.approx([0.5, (0.5 + 0.25 + 0.25) / 3])
    assert builder.segments == segments
    assert (builder.window, builder.verified_text, builder.tentative_text) == (None, "", "")


def test_windows_are_joined_without_silence_and_late_commits(builder):
    builder.observe(commit(0, A, END, final=True))
    assert builder.observe(commit(0, C, END, final=True)) == []
    for number, tokens in enumerate(((B, END), (END,)), start=1):
        builder.observe(opened(number, start_frame=number * 3000))
        builder.observe(commit(0, *tokens, window_id=number, final=True))
    transcript = builder.finish()
    assert transcript.text == str(transcript) == "ab"
    assert [segment.start_s for segment in transcript.segments] == [0.0, 30.0]
    assert transcript.window_tokens == ((A, END), (B, END), (END,))
    assert (transcript.stats.num_windows, transcript.stats.num_committed) == (3, 7)


def test_no_segment_lasts_longer_than_a_window_that_another_language_ended():
    builder = TranscriptBuilder(VOCABULARY)
    builder.num_samples = 160_000
    builder.observe(WindowOpened(Window(0, 0, 130, (END + 1,), 60)))
    written = commit(0, TIME, A, TIME + 60, TIME + 60, B, TIME + 98, END, final=True)
    assert [(s.start_s, s.end_s) for s in builder.observe(written)] == [(0.0, 1.2), (1.2, 1.3)]
    builder.observe(WindowOpened(Window(1, 130, 130, (END + 1,), 60)))
    (after,) = builder.observe(commit(0, TIME, C, TIME + 40, END, window_id=1, final=True))
    assert (after.start_s, after.end_s) == (1.3, 2.1)


def test_a_commit_after_a_gap_is_refused(builder):
    builder.observe(commit(0, A))
    with pytest.raises(InvalidCandidates, match="position 2 leaves a gap after 1"):
        builder.observe(commit(2, C))


@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    noise=st.lists(st.tuples(st.integers(0, 12), st.lists(st.integers(0, 3), max_size=4))),
    overlap=st.integers(0, 3),
)
def test_the_text_depends_on_commits_alone(text, noise, overlap):
    builder = TranscriptBuilder(VOCABULARY)
    builder.observe(opened())
    drafts = iter(noise)
    for position, token in enumerate([*text, END]):
        for base, tokens in [draft for _, draft in zip(range(2), drafts, strict=False)]:
            builder.observe(candidates(base, *tokens))
        base = max(0, position - overlap)
        builder.observe(commit(base, *text[base:position], token, final=token == END))
    assert builder.finish().window_tokens == ((*text, END),)
    assert [segment.tokens for segment in builder.segments] == [tuple(text)]
