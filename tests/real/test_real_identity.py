"""On real weights and human speech, every mode writes what transformers writes.

The draft has another tokenizer. It is often right, and silent in languages that it lacks.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from experiments.common.inline_pair import InlinePair
from experiments.exactness.comparison import differences
from specwhisper.options import GREEDY, DecodingOptions
from specwhisper.types import Mode
from specwhisper_evaluation.comparison import error_rates
from tests.nightly import NIGHTLY, mostly_nightly
from tests.real.pair import (
    BY_DAY,
    JFK,
    MODES,
    RECORDINGS,
    SHORT,
    TEXTS,
    checkpoint,
    draft,
    options_for,
    pcm,
    reference,
    target,
    transcribed,
)

# By day some recordings are read one by one, and all of them as one.
BY_RECORDING = mostly_nightly(sorted(RECORDINGS, key=lambda name: name not in BY_DAY), by_day=len(BY_DAY))
FEW = MODES if NIGHTLY else (Mode.SYNC, Mode.FULL)  # lock-step and ahead; the rest at night
FALLBACK = {
    "temperatures": (0.0, 0.4, 0.8),
    "logprob_threshold": -0.3,
    "compression_ratio_threshold": 1.5,
    "no_speech_threshold": 0.6,
}
OPTIONS = {
    "no timestamps": {"timestamps": False},
    "words": {"word_timestamps": True},
    "translate": {"task": "translate"},
    "French": {"language": "fr"},
    "sampling": {"temperatures": (0.5,), "seed": 7},
    "fallback": FALLBACK,
    "default": {name: getattr(DecodingOptions(), name) for name in GREEDY},
}


def check(audio: bytes, options, *, modes: Sequence[Mode] = FEW, is_reference: bool = True) -> None:
    """Compare target-only with transformers, and other modes with target-only."""
    alone = transcribed(Mode.TARGET_ONLY, audio, options)
    if is_reference:
        assert differences([alone], [reference(audio, options)]) == []
    for mode in modes:
        drafted = transcribed(mode, audio, options)
        assert drafted.window_tokens == alone.window_tokens, mode
        words = [word for segment in alone.segments for word in segment.words]
        assert [word for segment in drafted.segments for word in segment.words] == words, mode


@pytest.mark.parametrize("name", BY_RECORDING)
def test_every_mode_writes_the_words_that_were_said(name):
    options = options_for(pcm(name), language="en")
    check(pcm(name), options, modes=MODES)
    text = transcribed(Mode.FULL, pcm(name), options).text
    assert error_rates([TEXTS[name]], [text], "en").wer == 0


@pytest.mark.parametrize("name", mostly_nightly([SHORT, *sorted({*RECORDINGS} - {SHORT})]))
@pytest.mark.parametrize("case", OPTIONS)
def test_every_option(case, name):
    check(pcm(name), options_for(pcm(name), **{"language": "en"} | OPTIONS[case]))


def test_the_language_is_detected():
    options = options_for(pcm(SHORT))
    check(pcm(SHORT), options)
    assert transcribed(Mode.FULL, pcm(SHORT), options).language == "en"


def test_prompts():
    """transformers takes prompts as tokens, so target-only is the reference here."""
    options = options_for(
        pcm(SHORT), language="en", initial_prompt="He was an Ill-Disposed man", hotwords="Dashwood"
    )
    check(pcm(SHORT), options, is_reference=False)


def test_a_long_recording_has_several_windows():
    audio = pcm(*RECORDINGS)
    options = options_for(audio, language="en")
    check(audio, options, modes=MODES if NIGHTLY else (Mode.FULL,))
    alone = transcribed(Mode.TARGET_ONLY, audio, options)
    assert len(alone.window_tokens) > 1
    said = " ".join(TEXTS[name] for name in RECORDINGS)
    assert error_rates([said], [alone.text], "en").wer <= 0.03


def test_noise_falls_back_and_ends():
    noise = np.random.default_rng(3).normal(0, 2_000, 5 * 16_000).astype("<i2").tobytes()
    check(noise, options_for(noise, language="en", **FALLBACK))


def test_recordings_side_by_side():
    options = [options_for(pcm(name), language="en") for name in BY_DAY]
    pair = InlinePair(target(), draft(), max_new_tokens=checkpoint("base").max_new_tokens)
    texts = pair.transcribe([pcm(name) for name in BY_DAY], options)
    for name, one, text in zip(BY_DAY, options, texts, strict=True):
        assert text.window_tokens == transcribed(Mode.TARGET_ONLY, pcm(name), one).window_tokens


def test_hints_right_and_wrong_change_no_token():
    audio, plain = pcm(JFK), options_for(pcm(JFK), language="en")
    alone = transcribed(Mode.TARGET_ONLY, audio, plain)
    for text in (alone.text, TEXTS["austen_0870.flac"], alone.text.replace("country", "county")):
        for mode in (Mode.TARGET_ONLY, Mode.FULL):
            hinted = transcribed(mode, audio, options_for(audio, language="en", hint=text))
            assert hinted.window_tokens == alone.window_tokens
    right = transcribed(Mode.TARGET_ONLY, audio, options_for(audio, language="en", hint=alone.text))
    assert right.stats.num_forwards <= alone.stats.num_forwards / 3


def test_int8_is_a_target_of_its_own():
    audio, options = pcm(SHORT), options_for(pcm(SHORT), language="en")
    alone = transcribed(Mode.TARGET_ONLY, audio, options, dtype="int8")
    for mode in MODES:
        assert transcribed(mode, audio, options, dtype="int8").window_tokens == alone.window_tokens
    assert error_rates([TEXTS[SHORT]], [alone.text], "en").wer == 0


def test_an_english_draft_is_mostly_right():
    texts = [transcribed(Mode.SYNC, pcm(name), options_for(pcm(name), language="en")) for name in BY_DAY]
    accepted = sum(text.stats.num_accepted for text in texts)
    assert accepted >= 0.75 * sum(text.stats.num_verified for text in texts)
    tokens = sum(text.stats.num_committed for text in texts)
    assert tokens >= 3 * sum(text.stats.num_forwards for text in texts)


def test_an_english_draft_sends_nothing_in_french():
    audio = pcm(SHORT)
    for options in ({"language": "fr"}, {"language": "en", "task": "translate"}):
        text = transcribed(Mode.FULL, audio, options_for(audio, **options))
        assert text.stats.num_drafted == text.stats.num_verified == 0
