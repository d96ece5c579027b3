"""With ``hallucination_silence_threshold`` every mode leaves out what the target alone leaves out."""

from dataclasses import replace
from functools import cache

import pytest

from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import Shape
from experiments.exactness.cases import Case
from experiments.exactness.prepared import Prepared
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcription import Transcription
from tests.identity.test_options import RUNS, split
from tests.nightly import NIGHTLY, mostly_nightly

WORDS = DecodingOptions.greedy(language="en", max_new_tokens=40, word_timestamps=True)
CONDITIONED = replace(WORDS, condition_on_previous_text=True, temperatures=(0.0, 0.4), logprob_threshold=-1.6)
THRESHOLD_S = 0.5


@cache
def made() -> Prepared:
    return Prepared(
        Case("hallucinations", Shape(seed=31, decoder_layers=3), (95.0 if NIGHTLY else 40.0, 12.0), WORDS)
    )


def options_of(options: DecodingOptions, threshold_s: float | None = THRESHOLD_S) -> list[DecodingOptions]:
    return [
        replace(options, log_mel_max=each.log_mel_max, hallucination_silence_threshold=threshold_s)
        for each in made().recording_options
    ]


@cache
def alone(name: str) -> list[Transcription]:
    return InlinePair(made().target(2)).transcribe(made().pcms, options_of(OPTIONS[name]))


OPTIONS = {"words": WORDS, "with previous text and fallback": CONDITIONED}


@pytest.mark.parametrize("name", mostly_nightly(OPTIONS))
@pytest.mark.parametrize(("mode", "gamma", "draft", "kind"), mostly_nightly(RUNS))
def test_every_mode_leaves_out_the_same(name, mode, gamma, draft, kind):
    engine = split(made(), mode, gamma, draft, kind, made().target(2))
    texts = engine.transcribe(made().pcms, options_of(OPTIONS[name]))
    for text, expected in zip(texts, alone(name), strict=True):
        assert text.window_tokens == expected.window_tokens
        assert [(s.start_s, s.tokens, s.words) for s in text.segments] == [
            (s.start_s, s.tokens, s.words) for s in expected.segments
        ]


def test_something_is_left_out_and_no_word_without_its_segment():
    with_all = InlinePair(made().target(2)).transcribe(made().pcms, options_of(WORDS, None))
    assert [len(text.segments) for text in with_all] != [len(text.segments) for text in alone("words")]
    written = sum(len(tokens) for text in alone("words") for tokens in text.window_tokens)
    kept = sum(len(segment.tokens) for text in alone("words") for segment in text.segments)
    assert kept < written / 2, "nearly all that random weights write is an anomaly"
    for text in alone("words"):
        assert all(segment.words for segment in text.segments if segment.text.strip())
