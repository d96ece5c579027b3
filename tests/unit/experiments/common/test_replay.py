"""Replay models have another shape's cost, and the demo pair's text."""

from dataclasses import replace

import pytest

from experiments.common.audio.samples import Sample, load_samples
from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import Shape, build_checkpoint
from experiments.common.replay.model import ReplayDraft, ReplayTarget
from experiments.common.replay.record import record_models
from experiments.common.replay.trace import Decoding, Trace
from specwhisper.audio.recording import log_mel_max
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.model.translated import open_draft
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode
from tests.nightly import NIGHTLY, mostly_nightly

TIMED = DecodingOptions.greedy(language="en")
UNTIMED = DecodingOptions.greedy(language="en", timestamps=False)
PROMPTED = DecodingOptions.greedy(
    language="en", condition_on_previous_text=True, temperatures=(0.0, 0.4), logprob_threshold=-0.05, seed=3
)
EVERY_OPTION = (TIMED, UNTIMED, PROMPTED)


class Pair:
    """A target and its draft; transcripts are cached."""

    def __init__(self, target, draft, max_new_tokens=None):
        self.target, self.draft, self.max_new_tokens = target, draft, max_new_tokens
        self._known = {}

    def transcribe(self, sample, options, mode, gamma=3):
        key = sample.name, repr(options), mode, gamma
        if key not in self._known:
            engine = InlinePair(
                self.target, self.draft, mode=mode, gamma=gamma, max_new_tokens=self.max_new_tokens
            )
            options = replace(options, log_mel_max=sample.log_mel_max)
            self._known[key] = engine.transcribe([sample.pcm], options)[0]
        return self._known[key]


def cases(samples):
    short, long = samples
    return [(short, TIMED), (short, UNTIMED), (long, PROMPTED)]


def texts(transcript):
    return [(s.start_s, s.end_s, s.tokens, s.text) for s in transcript.segments]


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    """The shortest bundled recording, and one of two windows; by day of one."""
    shortest = load_samples(None)[0]
    long = shortest.pcm * (3 if NIGHTLY else 1)
    assert len(long) > 30 * 32_000 or not NIGHTLY
    return [shortest, Sample("three times", long, log_mel_max([long]))]


@pytest.fixture(scope="module")
def demo() -> Pair:
    large, small = load_checkpoint("demo-target"), load_checkpoint("demo-draft-tiny")
    return Pair(
        WhisperModel(large, 4),
        open_draft(small, 4, large.vocabulary),
        large.max_new_tokens,
    )


@pytest.fixture(scope="module")
def trace(samples, demo) -> Trace:
    decodings = record_models(
        demo.target,
        demo.draft,
        samples,
        EVERY_OPTION,
        max_new_tokens=demo.max_new_tokens,
        max_continuation=16,
    )
    return Trace(
        target="demo-target",
        draft="demo-draft-tiny",
        vocabulary_digest=demo.target.vocabulary.digest,
        decodings=decodings,
    )


def random_model(num_slots=4, **shape) -> WhisperModel:
    return WhisperModel(build_checkpoint(Shape(d_model=32, **shape))[1], num_slots)


@pytest.fixture(scope="module", params=[pytest.param("random weights", marks=pytest.mark.nightly), "free"])
def replayed(request, trace, demo) -> Pair:
    vocabulary = demo.target.vocabulary
    is_free = request.param == "free"
    forward = None if is_free else random_model()
    target = ReplayTarget(trace, vocabulary, forward, num_slots=4)
    forward = None if is_free else random_model(seed=1, decoder_layers=1, num_mel_bins=128)
    return Pair(target, ReplayDraft(trace, vocabulary, forward, num_slots=4), demo.max_new_tokens)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", mostly_nightly([Mode.FULL, *sorted({*Mode} - {Mode.FULL})]))
def test_every_mode_writes_the_demo_pairs_text(samples, demo, replayed, mode):
    for sample, options in cases(samples):
        expected = demo.transcribe(sample, options, Mode.TARGET_ONLY)
        got = replayed.transcribe(sample, options, mode)
        assert got.window_tokens == expected.window_tokens
        assert texts(got) == texts(expected)


def test_a_draft_follows_its_divergence_and_then_repeats_its_last_token():
    decoding = Decoding("", 0, "", (), 0.0, (1, 2, 3, 9), (0.0,) * 4, (0.0,) * 4, divergences={2: (5, 6)})

    def after(written: tuple[int, ...]) -> int:
        return decoding.draft_after(written)[0]

    assert [after(()), after((1,)), after((1, 2)), after((1, 2, 3))] == [1, 2, 5, 9]
    assert [after((1, 2, 5)), after((1, 2, 5, 6)), after((1, 2, 5, 6, 6))] == [6, 6, 6]
    assert after((7, 7, 7)) == 9  # not in the trace
    assert after((1, 2, 3, 9)) == 9


def test_a_draft_has_its_recorded_log_probs():
    sure = Decoding(
        *("", 0, "", (), 0.0, (1, 2, 3, 9), (0.0,) * 4, (0.0,) * 4),
        divergences={2: (5, 6)},
        draft_log_probs=(-0.1, -0.2, -0.9, -0.3),
        continuation_log_probs={2: (-0.9, -1.5)},
    )
    log_probs = [
        sure.draft_after(written)[1] for written in ((), (1,), (1, 2), (1, 2, 5), (1, 2, 5, 6), (1, 2, 3))
    ]
    assert log_probs == [-0.1, -0.2, -0.9, -1.5, -1.5, -0.3]
