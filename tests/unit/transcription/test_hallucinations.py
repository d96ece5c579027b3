"""Invented segments are left out as in openai/whisper."""

from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from math import log
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specwhisper.transcription.hallucinations import review, spoken_segments
from specwhisper.transcription.segments import split_window
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import WINDOW_FRAMES, Segment, Window, Word, WordAlignment
from tests.nightly import examples

END, TIME = 50_257, 50_364  # of openai/whisper's multilingual tokenizer
STEPS_PER_S, STEP_SAMPLES = 50, 320


def window(num_frames: int = WINDOW_FRAMES, start_frame: int = 0) -> Window:
    return Window(0, start_frame, num_frames, (50_258,), 200)


def said(start_s: float, end_s: float, *, probability: float = 0.9, num_words: int = 2) -> Segment:
    """Return a segment whose words share its time."""
    times = np.linspace(start_s, end_s, num_words + 1).tolist()
    words = [Word(one, other, " word", probability) for one, other in pairwise(times)]
    return Segment(start_s, end_s, (), words=tuple(words))


def invented(start_s: float, end_s: float) -> Segment:
    return said(start_s, end_s, probability=0.01)


@pytest.mark.parametrize(
    ("segments", "kept", "next_frame"),
    [
        ([said(1, 2), said(3, 4)], 2, None),
        ([said(1, 1.5), invented(8, 9), said(20, 20.6)], 1, 800),
        ([said(1, 1.5), invented(2, 3), said(20, 20.6)], 3, None),  # no silence before it
        ([said(1, 1.5), invented(18, 19), said(19.5, 20)], 3, None),  # nor after it
        ([said(1, 1.5), invented(18, 19), invented(19.5, 20), said(29, 29.5)], 1, 1800),
        ([invented(5, 6), said(8, 8.5)], 0, 500),  # the silence before the first one is skipped
        ([invented(0.5, 1), said(8, 8.5)], 0, 100),  # at least a second is
        ([said(1, 1.5), invented(28.5, 29.5)], 1, 2850),
        ([Segment(0, 30, ())], 1, None),  # without words
    ],
)
def test_what_is_left_out(segments, kept, next_frame):
    assert review(window(), segments, 2.0, ends_silent=True) == (kept, next_frame)


LAST = [said(1, 1.5), invented(17, 18.2), invented(18.5, 19)]


@pytest.mark.parametrize(
    ("opened", "segments", "ends_silent", "expected"),
    [
        (window(), [said(1, 1.5), said(24.5, 25)], False, (2, 2_500)),  # it continues after its last word
        (window(), [said(1, 1.5), said(28.5, 29)], False, (2, 3_000)),
        (window(start_frame=1_000), [said(11, 12)], False, (1, 1_200)),
        (window(2_000), LAST, True, (1, 2_000)),  # at the end nothing is decoded again
        (window(2_500), LAST, True, (1, 1_700)),
    ],
)
def test_where_the_next_window_begins(opened, segments, ends_silent, expected):
    assert review(opened, segments, 2.0, ends_silent=ends_silent) == expected


@dataclass(frozen=True)
class Scripted:
    """The text that a model writes of a recording's first window.

    Attributes
    ----------
    words : each text token's text, steps from the window's start at its beginning and end, probability.
    """

    num_frames: int
    tokens: tuple[int, ...]
    words: tuple[tuple[str, int, int, float], ...]
    threshold_s: float


def review_of_openai(scripted: Scripted) -> tuple[int, int]:
    """Return how many segments openai/whisper keeps, and where its next window begins."""
    whisper = pytest.importorskip("whisper", exc_type=ImportError)
    program = import_module("whisper.transcribe")
    timing = import_module("whisper.timing")
    begins, kept = [], []
    is_skipped = True

    class Model:
        device = torch.device("cpu")
        is_multilingual, num_languages = True, 99
        dims = SimpleNamespace(n_mels=80, n_audio_ctx=1_500, n_text_ctx=448)

        def decode(self, segment, options):
            begins.append(int(segment[0, 0]))
            if len(begins) > 1:
                raise EOFError("the second window")
            return whisper.DecodingResult(segment, "en", tokens=list(scripted.tokens), temperature=0.0)

    class Progress:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, _):
            nonlocal is_skipped
            is_skipped = False

    def with_words(*, segments, **arguments):
        for segment in segments:  # as ours are: else the rules break ties by the noise of floats
            segment.update({name: round(segment[name], 2) for name in ("start", "end")})
        add_words(segments=segments, **arguments)
        kept.append(segments)  # the list that later rules shorten

    frames = torch.arange(scripted.num_frames + WINDOW_FRAMES, dtype=torch.float32).expand(80, -1)
    words = [
        timing.WordTiming(text, [number], start / STEPS_PER_S, end / STEPS_PER_S, probability)
        for number, (text, start, end, probability) in enumerate(scripted.words)
    ]
    with pytest.MonkeyPatch.context() as patch:
        add_words = program.add_word_timestamps
        patch.setattr(program, "log_mel_spectrogram", lambda *_, **__: frames)
        patch.setattr(program, "add_word_timestamps", with_words)
        patch.setattr(program.tqdm, "tqdm", lambda **_: Progress())
        patch.setattr(timing, "find_alignment", lambda *_, **__: words)
        with suppress(EOFError):
            program.transcribe(
                Model(),
                np.zeros(160, np.float32),
                language="en",
                fp16=False,
                compression_ratio_threshold=None,
                logprob_threshold=None,
                no_speech_threshold=None,
                word_timestamps=True,
                hallucination_silence_threshold=scripted.threshold_s,
            )
    next_frame = begins[1] if len(begins) > 1 else scripted.num_frames
    return 0 if is_skipped else len(kept[0]), next_frame


def our_review(scripted: Scripted) -> tuple[int, int]:
    """Return the same by our rules."""
    texts = tuple(text.replace(" ", "Ġ") for text, *_ in scripted.words)
    vocabulary = Vocabulary(texts, END, END + 1, no_timestamps=None, timestamp_begin=TIME)
    opened = window(min(scripted.num_frames, WINDOW_FRAMES))
    result = split_window(opened, scripted.tokens, vocabulary)
    positions = [place for place, token in enumerate(scripted.tokens) if token < END]
    words: list[WordAlignment] = []
    for position, (text, start, end, _) in zip(positions, scripted.words, strict=True):
        word = WordAlignment(position, 1, start * STEP_SAMPLES, end * STEP_SAMPLES)
        if text == ".":
            last = words.pop()
            word = WordAlignment(last.base, 2, last.start_sample, word.end_sample, spoken=last)
        words.append(word)
    log_probs = [0.0] * len(scripted.tokens)
    for position, (*_, probability) in zip(positions, scripted.words, strict=True):
        log_probs[position] = log(probability)
    spoken = spoken_segments(opened, result.segments, words, scripted.tokens, log_probs, vocabulary)
    ends_silent = result.ends_silent
    kept, next_frame = review(opened, spoken, scripted.threshold_s, ends_silent=ends_silent)
    next_frame = result.advance_frames if next_frame is None else next_frame
    return kept, min(next_frame, scripted.num_frames)


@st.composite
def windows_of_words(draw) -> Scripted:
    """Draw a window of segments, with words of usual and of odd lengths, and pauses between them."""
    num_frames = draw(st.sampled_from([2_000, 3_000, 4_500]))
    end = min(num_frames, WINDOW_FRAMES) // 2
    words, tokens, at = [], [], 0
    for _ in range(draw(st.integers(1, 4))):
        at += draw(st.sampled_from([0, 5, 60, 130, 300]))
        start, first = at, len(words)
        for _ in range(draw(st.integers(1, 4))):
            length = draw(st.sampled_from([2, 5, 15, 20, 31, 150]))
            probability = draw(st.sampled_from([0.01, 0.1, 0.5, 0.9]))
            if at + length <= end:
                words.append((" one", at, at + length, probability))
                at += length
                if draw(st.booleans()):
                    pause = min(draw(st.sampled_from([0, 3, 100])), end - at)
                    words.append((".", at, at + pause, 0.5))
                    at += pause
        if len(words) == first:
            break
        slack = draw(st.integers(-40, 40))
        tokens += [TIME + max(0, start - max(0, slack)), *range(first, len(words))]
        tokens += [TIME + min(end, max(start, at + slack))]
    if not words:
        words, tokens = [(" one", 0, 10, 0.9)], [TIME, 0, TIME + 10]
    if draw(st.booleans()):
        tokens = [*tokens, tokens[-1]]  # speech follows
    return Scripted(num_frames, tuple(tokens), tuple(words), draw(st.sampled_from([0.5, 1.0, 2.0])))


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves a file open
@settings(deadline=None, max_examples=examples(200, 1_000))
@given(windows_of_words())
def test_a_window_is_reviewed_as_in_openai_whisper(scripted: Scripted):
    assert our_review(scripted) == review_of_openai(scripted)
