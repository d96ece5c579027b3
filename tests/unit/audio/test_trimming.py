"""Words last as long as their sound: in order, never empty, trimmed inwards only, and not across sound."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from experiments.common.models.scripted import END, TIME, VOCABULARY
from specwhisper.audio.trimming import PAUSE, POSITION_SAMPLES, trimmed
from specwhisper.transcription.formats import cues
from specwhisper.transcription.transcript import TranscriptBuilder
from specwhisper.types import HOP_SAMPLES, Commit, Segment, Window, WindowOpened, WordAlignment
from tests.nightly import examples

SPEECH_DB, NOISE_DB = -20, -60


def recorded(is_loud: list[bool], seed: int = 0) -> bytes:
    """Return noise with louder noise in some positions."""
    samples = np.random.default_rng(seed).normal(size=(len(is_loud), POSITION_SAMPLES))
    levels_db = np.where(is_loud, SPEECH_DB, NOISE_DB)[:, None]
    return (samples * 32768 * 10 ** (levels_db / 20)).clip(-32768, 32767).astype("<i2").tobytes()


def aligned(times: list[tuple[int, int]], start_sample: int = 0) -> list[WordAlignment]:
    return [
        WordAlignment(i, 1, *(start_sample + position * POSITION_SAMPLES for position in span))
        for i, span in enumerate(times)
    ]


def positions(words: tuple[WordAlignment, ...], start_sample: int = 0) -> list[tuple[int, int]]:
    return [
        tuple((at - start_sample) // POSITION_SAMPLES for at in (word.start_sample, word.end_sample))
        for word in words
    ]


def consecutive(numbers: list[int]) -> list[NDArray[np.int64]]:
    return np.split(np.array(numbers, np.int64), np.flatnonzero(np.diff(numbers) > 1) + 1)


@st.composite
def sounds(draw: st.DrawFn, min_size: int = 0) -> list[bool]:
    """Return which positions are loud: runs of all lengths."""
    runs = draw(st.lists(st.integers(1, 60), min_size=min_size, max_size=20))
    begins_loud = draw(st.booleans())
    return [(number % 2 == 0) is begins_loud for number, length in enumerate(runs) for _ in range(length)]


@st.composite
def spoken(draw: st.DrawFn, shortest: int) -> tuple[list[bool], list[tuple[int, int]]]:
    """Return a recording and words in it."""
    is_loud = draw(sounds(min_size=1))
    edges = sorted(draw(st.lists(st.integers(0, len(is_loud)), max_size=30)))
    is_loud += [False] * (50 + len(is_loud))  # quiet enough that sound stands out
    return is_loud, [span for span in pairwise(edges) if span[1] - span[0] >= shortest]


@settings(max_examples=examples(80, 2000))
@given(spoken(shortest=1), st.integers(0, 10**6))
def test_words_are_trimmed_inwards_to_their_longest_sound(recording, start_frame) -> None:
    is_loud, times = recording
    start_sample = start_frame * HOP_SAMPLES
    words = trimmed(aligned(times, start_sample), recorded(is_loud), start_sample)
    for (begin, end), (first, last) in zip(times, positions(words, start_sample), strict=True):
        assert begin <= first < last <= end
        loud = [at for at in range(begin, end) if is_loud[at]]
        if (first, last) == (begin, end):
            continue
        assert any(is_loud[max(0, first - 1) : first + 2])
        assert any(is_loud[max(0, last - 2) : last + 1])
        left_out = [at for at in loud if not first <= at < last]
        assert set(left_out).isdisjoint(range(first - PAUSE, last + PAUSE))  # no sound is cut
        kept = [at for at in range(first, last) if any(is_loud[max(0, at - 1) : at + 2])]
        assert all(len(sound) <= len(kept) for sound in consecutive(left_out))


@settings(max_examples=examples(80, 2000))
@given(spoken(shortest=0), st.booleans())
def test_no_word_is_empty_and_all_are_in_order(recording, is_silent) -> None:
    is_loud, times = recording
    pcm = b"\0" * len(is_loud) * POSITION_SAMPLES * 2 if is_silent else recorded(is_loud)
    words = trimmed(aligned(times), pcm, 0)
    assert all(0 <= word.start_sample < word.end_sample for word in words)
    assert all(one.end_sample <= other.start_sample for one, other in pairwise(words))
    if len(words) <= len(is_loud):
        assert all(word.end_sample <= len(is_loud) * POSITION_SAMPLES for word in words)
        assert all(word.end_sample - word.start_sample >= POSITION_SAMPLES for word in words)


@pytest.mark.parametrize(
    ("sound", "times", "expected"),
    [
        ("....####....", [(0, 12)], [(4, 8)]),
        ("....####....####", [(0, 10)], [(4, 8)]),
        ("....####....####....", [(0, 20)], [(4, 16)]),  # a short pause
        ("####....####" + 20 * "." + "##", [(0, 34)], [(0, 12)]),  # a click after the word
        ("##" + 20 * "." + "####" + 20 * ".", [(0, 40)], [(22, 26)]),  # the end of the word before it
        ("############", [(0, 12)], [(0, 12)]),  # music, or noise as loud as speech
        ("............", [(0, 12)], [(0, 12)]),
        ("....####....", [(4, 4), (4, 4), (4, 8)], [(4, 5), (5, 6), (6, 8)]),
        ("########", [(0, 8), (8, 8)], [(0, 7), (7, 8)]),
        ("", [(0, 3), (3, 3)], [(0, 2), (2, 3)]),  # after the audio
    ],
)
def test_examples(sound, times, expected) -> None:
    """Loudness is measured over 35 ms, so sound reaches into the positions beside it."""
    pcm = recorded([mark == "#" for mark in sound])
    found = positions(trimmed(aligned(times), pcm, 0))
    for (first, last), (begin, end) in zip(found, expected, strict=True):
        assert begin - 1 <= first <= begin and end <= last <= end + 1


def test_many_words_share_little_audio() -> None:
    words = trimmed(aligned([(0, 0)] * 5), recorded([True]), 0)
    assert [(word.start_sample, word.end_sample) for word in words] == [
        (i * 64, i * 64 + 64) for i in range(5)
    ]


def transcribed(is_loud: list[bool], tokens: list[int], times: list[tuple[int, int]]) -> list[Segment]:
    """Return the segments of a recording that is one window."""
    places = [place for place, token in enumerate(tokens) if token < END]
    words = [
        WordAlignment(place, 1, *(320 * at for at in span)) for place, span in zip(places, times, strict=True)
    ]
    builder = TranscriptBuilder(VOCABULARY)
    builder.observe(WindowOpened(Window(0, 0, 3000, (END + 1,), 60)))
    commit = Commit(
        0,
        0,
        (*tokens, END),
        (0.0,) * (len(tokens) + 1),
        is_final=True,
        words=trimmed(words, recorded(is_loud), 0),
    )
    return builder.observe(commit)


def test_the_first_cue_of_late_audio_begins_with_its_sound() -> None:
    late = [False] * 200 + [True] * 50
    segments = transcribed(late, [TIME, 0, 1, TIME + 250], [(0, 220), (220, 250)])
    assert [(cue.start_s, cue.end_s) for cue in cues(segments)] == [(3.98, 5.0)]
    assert segments[0].start_s == 0.0  # transformers'


@settings(max_examples=examples(40, 1000))
@given(st.data())
def test_words_after_the_border_of_their_window_are_not_empty(data) -> None:
    is_loud = data.draw(sounds(min_size=2))
    edges = sorted(data.draw(st.lists(st.integers(0, len(is_loud)), min_size=5, max_size=5)))
    end = data.draw(st.integers(1, 1500))
    tokens = [TIME, 0, 1, TIME + end, TIME + end, 2, 3]  # the last two are decoded again
    segments = transcribed(is_loud, tokens, list(pairwise(edges)))
    words = [word for segment in segments for word in segment.words]
    assert len(words) == 2
    assert all(word.start_s < word.end_s for word in words)
    assert words[0].end_s <= words[1].start_s
