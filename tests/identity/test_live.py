"""Each window of live audio has the text of plain transformers, after the same beginning."""

from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from unittest.mock import patch

import pytest
import torch
from transformers.generation.logits_process import (
    SuppressTokensAtBeginLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

from experiments.exactness import oracle
from specwhisper.audio.decode import decode_file
from specwhisper.live import LiveOptions
from specwhisper.model.checkpoints.names import DEMO_FOLDER
from specwhisper.options import DecodingOptions, Padding, WordTimes
from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, Mode, Window
from tests.identity.test_demo_pair import demo_pair
from tests.live import BEGIN, CUT, END, mark
from tests.live_engines import LivePair, LiveSession
from tests.nightly import NIGHTLY, mostly_nightly

SAMPLE = DEMO_FOLDER / "samples" / "01_phone_call.flac"
MARKS = {0: BEGIN, 3: CUT, 6.24: END, 6.5: BEGIN, 9.4: END}
OPTIONS = {
    "plain": {},
    "words": {"word_timestamps": True, "word_times": WordTimes.MODEL},
    "confirmed": {"live": LiveOptions(confirm_every_ms=1_500 if NIGHTLY else 3_000)},
    "no timestamps": {"timestamps": False},
    "zeros": {"padding": Padding.ZERO},
}


@cache
def pcm() -> bytes:
    return b"".join(decode_file(SAMPLE))[: round(9.5 * SAMPLE_RATE) * 2]


def options_of(case: str) -> DecodingOptions:
    return DecodingOptions.greedy(**{"language": "en", "live": LiveOptions()} | OPTIONS[case])


@cache
def transcribed(mode: Mode, case: str) -> LiveSession:
    """Transcribe the sample in chunks of half a second, each after the last is decoded."""
    made = demo_pair()
    pair = LivePair(made.target(1), made.draft("demo-draft-tiny", 1) if mode.drafts else None)
    session = pair.open("one", options_of(case))
    for half in range(20):
        at_s = half / 2
        marks = [mark(event, second) for second, event in MARKS.items() if at_s <= second < at_s + 0.5]
        chunk = pcm()[half * SAMPLE_RATE : (half + 1) * SAMPLE_RATE]
        pair.append_audio("one", chunk, *marks)
        pair.settle()
    pair.append_audio("one", b"", is_last=True)
    pair.settle()
    assert session.is_finished and session.has_draft
    return session


@cache
def reference(window: Window, case: str) -> oracle.OracleText:
    """Return what transformers generates for a window's audio after its prompt and prefix."""
    start, length = window.start_sample * 2, window.num_frames * HOP_SAMPLES * 2
    given = torch.tensor([[*window.prompt, *window.prefix]])
    with ExitStack() as patches:
        for kind in (SuppressTokensAtBeginLogitsProcessor, WhisperTimeStampLogitsProcessor):
            # transformers takes all that is given for the prompt.
            begins = len(window.prompt)
            replaced = lambda processor, _, begins=begins: setattr(processor, "begin_index", begins)  # noqa: E731
            patches.enter_context(patch.object(kind, "set_begin_index", replaced))
        return oracle.transcribe(
            demo_pair().model, pcm()[start : start + length], options_of(case), decoder_input_ids=given
        )


@pytest.mark.parametrize("mode", [Mode.FULL, Mode.TARGET_ONLY])
@pytest.mark.parametrize("case", mostly_nightly(OPTIONS, by_day=3))
def test_each_window_has_transformers_text_after_its_prefix(case, mode):
    session = transcribed(mode, case)
    assert len(session.windows) == 3 or case == "confirmed"
    for window, tokens in session.windows:
        expected = reference(replace(window, id=0), case).windows[0]
        assert not expected.ties, "choose a sample that is clear"
        assert tuple(tokens) == expected.tokens


@pytest.mark.parametrize("case", mostly_nightly(["plain", "no timestamps", "words", "zeros"], by_day=2))
def test_each_piece_follows_the_final_text_before_it(case):
    session, is_timed = transcribed(Mode.TARGET_ONLY, case), options_of(case).timestamps
    vocabulary, final = session.transcript._vocabulary, ()

    def text_of(tokens):
        return tuple(token for token in tokens if token < vocabulary.end_of_text)

    spans = ((0, 3), (3, 6.24), (6.5, 9.4))
    for (window, tokens), (begin_s, end_s) in zip(session.windows, spans, strict=True):
        assert (window.start_frame, window.num_frames) == (0, round(end_s * 100))
        assert text_of(window.prefix) == final
        own_time = (vocabulary.timestamp_begin + round(begin_s * 50),)
        assert window.prefix[-1:] == (own_time if begin_s and is_timed else final[-1:])
        final += text_of(tokens)


@pytest.mark.parametrize("case", mostly_nightly(OPTIONS, by_day=3))
def test_a_draft_changes_nothing_and_saves_forward_passes(case):
    ours, alone = transcribed(Mode.FULL, case), transcribed(Mode.TARGET_ONLY, case)
    assert ours.segments == alone.segments
    assert [each.utterance for each in ours.segments if each.is_utterance_end] == [1, 2]
    if case != "confirmed":
        num_forwards = alone.transcript.statistics.num_forwards
        assert ours.transcript.statistics.num_forwards < 0.7 * num_forwards


def test_windows_that_are_not_final_change_nothing():
    assert transcribed(Mode.TARGET_ONLY, "confirmed").segments == transcribed(Mode.FULL, "plain").segments


def test_words_have_transformers_times_where_nothing_is_given():
    session = transcribed(Mode.FULL, "words")
    window = session.windows[0][0]
    assert not window.prefix
    segments = reference(replace(window, id=0), "words").segments
    ends_s = [round(end, 2) for segment in segments for end in segment.ends_s]
    words = [word for segment in session.segments for word in segment.words if word.end_s <= 3]
    assert words and {round(word.end_s, 2) for word in words} <= {*ends_s}
