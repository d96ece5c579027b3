"""Every step of live audio equals plain transformers on just that clip."""

from __future__ import annotations

from functools import cache

import pytest

from experiments.exactness import oracle
from specwhisper.audio.decode import decode_file
from specwhisper.live import LiveOptions
from specwhisper.model.checkpoints.names import DEMO_FOLDER
from specwhisper.model.model import WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions, Padding
from specwhisper.types import HOP_SAMPLES, SAMPLE_RATE, Mode
from tests.identity.test_demo_pair import checkpoint, transformers_target
from tests.live import BEGIN, ENDED, mark
from tests.live_engines import LivePair, LiveSession
from tests.nightly import mostly_nightly

SAMPLE = DEMO_FOLDER / "samples" / "01_phone_call.flac"
LENGTH_S = 9.5
UTTERANCES = ((0.0, 6.25), (6.5, 9.4))
LIVE = LiveOptions(step_ms=1_500, trim_ms=4_000)
NO_REUSE = LiveOptions(step_ms=1_500, trim_ms=4_000, reuses_candidates=False)


@cache
def pcm() -> bytes:
    return b"".join(decode_file(SAMPLE))[: round(LENGTH_S * SAMPLE_RATE) * 2]


@cache
def plain_tokens(start_frame: int, num_frames: int, padding: Padding) -> oracle.OracleWindow:
    """Return the first window that transformers generates for a clip."""
    start = start_frame * HOP_SAMPLES * 2
    clip = pcm()[start : start + num_frames * HOP_SAMPLES * 2]
    options = DecodingOptions.greedy(language="en", padding=padding)
    return oracle.transcribe(transformers_target(), clip, options).windows[0]


def pair(mode: Mode) -> LivePair:
    draft, target = checkpoint("demo-draft-tiny"), checkpoint("demo-target")
    model = open_draft(draft, 2, target.vocabulary) if mode.drafts else None
    return LivePair(WhisperModel(target, 1), model, mode=mode)


@cache
def transcribed(mode: Mode, live: LiveOptions = LIVE, padding: Padding = Padding.SILENCE) -> LiveSession:
    """Transcribe the sample in pieces of half a second, each after the last is decoded."""
    engines = pair(mode)
    session = engines.open("one", DecodingOptions.greedy(language="en", live=live, padding=padding))
    known = []
    for begin_s, end_s in UTTERANCES:
        known += [
            (begin_s, mark(BEGIN, begin_s)),
            (end_s + 0.1, mark(ENDED, end_s)),
        ]
    step = SAMPLE_RATE // 2
    for start in range(0, len(pcm()) // 2, step):
        until_s = (start + step) / SAMPLE_RATE
        marks = [made for known_s, made in known if until_s - 0.5 <= known_s < until_s]
        engines.append_audio("one", pcm()[start * 2 : (start + step) * 2], *marks)
        engines.settle()
    engines.append_audio("one", b"", is_last=True)
    engines.settle()
    assert session.is_finished
    return session


@pytest.mark.parametrize("mode", mostly_nightly([Mode.FULL, Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED]))
def test_every_step_equals_transformers_on_its_clip(mode: Mode):
    _check_against_transformers(transcribed(mode))


def test_every_step_equals_transformers_with_zeros_after_its_clip():
    _check_against_transformers(transcribed(Mode.FULL, padding=Padding.ZERO), Padding.ZERO)


def test_every_step_equals_transformers_without_reuse_of_the_hypothesis():
    _check_against_transformers(transcribed(Mode.FULL, NO_REUSE))


def _check_against_transformers(session: LiveSession, padding: Padding = Padding.SILENCE) -> None:
    assert len(session.windows) >= 7
    for window, tokens in session.windows:
        expected = plain_tokens(window.start_frame, window.num_frames, padding)
        assert not expected.ties, "choose a sample that is clear"
        assert tuple(tokens) == expected.tokens


@pytest.mark.parametrize("mode", mostly_nightly([Mode.FULL, Mode.SYNC, Mode.PIPELINED]))
def test_final_text_and_passes_of_a_pair(mode: Mode):
    alone, ours = transcribed(Mode.TARGET_ONLY), transcribed(mode)
    assert ours.texts == alone.texts
    assert [s.utterance for s in ours.segments if s.is_utterance_end] == [1, 2]
    assert len({window.start_frame for window, _ in ours.windows}) == 3  # two utterances, one of them cut
    statistics = ours.transcript.statistics
    assert statistics.num_accepted > 0
    assert statistics.num_hinted_accepted > 0.5 * statistics.num_hinted > 0
    assert statistics.num_forwards < 0.5 * alone.transcript.statistics.num_forwards
