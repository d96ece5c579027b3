"""Hints save forward passes on a scripted model, and leave the text the target's own."""

from collections.abc import Iterable
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.common.inline_pair import InlinePair
from experiments.common.models.scripted import VOCABULARY, ScriptedModel, recording
from specwhisper.engine.verifier import Verifier
from specwhisper.errors import UnsupportedOption
from specwhisper.options import DecodingOptions
from specwhisper.speculation.batching import BatchTime
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import (
    CONTEXT_SAMPLES,
    AudioChunk,
    Commit,
    Finished,
    Mode,
    Resume,
    Window,
    WindowOpened,
)
from tests.interference import KINDS, Interference
from tests.nightly import examples

PCM = recording(75.0, 1)  # several windows
SEED = 3


@pytest.fixture(autouse=True)
def unknown_times(monkeypatch):
    """Let hints offer what they hold: times of scripted forward passes mean nothing on a busy machine."""
    monkeypatch.setattr(BatchTime, "observe", lambda *_: None)


def transcribe(mode: Mode, hint: str = "", *, edit_block=lambda block: (), **options) -> Transcription:
    """Transcribe with a draft whose blocks are edited; by default none arrives."""
    target, draft = ScriptedModel(seed=SEED), ScriptedModel(seed=SEED, error_rate=0.2)
    engine = InlinePair(target, draft, mode=mode, gamma=4, edit_block=edit_block)
    return engine.transcribe([PCM], DecodingOptions.greedy(language="en", hint=hint, **options))[0]


@cache
def own_text(**options) -> Transcription:
    """Return the target's own transcription."""
    return InlinePair(ScriptedModel(seed=SEED)).transcribe(
        [PCM], DecodingOptions.greedy(language="en", **options)
    )[0]


def text_tokens(tokens: Iterable[int]) -> tuple[int, ...]:
    return tuple(token for token in tokens if token < VOCABULARY.end_of_text)


def words_of(text: Transcription) -> list[str]:
    """Return a word for each text token."""
    tokens = [token for window in text.window_tokens for token in window]
    return [VOCABULARY.decode([token]) for token in text_tokens(tokens)]


def corrupted(words: list[str], share: float, seed: int = 0) -> str:
    """Replace, leave out or add a share of the words."""
    random, result = Random(seed), []
    for word in words:
        if random.random() >= share:
            result.append(word)
            continue
        result += random.choice([[], [random.choice(words)], [word, random.choice(words)]])
    return "".join(result)


@pytest.mark.parametrize("timestamps", [True, False])
# Not less: a scripted window does not begin with the tokens that the one before discards, as real ones do.
@pytest.mark.parametrize(("share", "most"), [(0.0, 0.33), (0.1, 0.4)])
def test_a_good_hint_saves_forward_passes_without_a_draft(timestamps, share, most):
    expected = own_text(timestamps=timestamps)
    hint = corrupted(words_of(expected), share)
    hinted = transcribe(Mode.FULL, hint, timestamps=timestamps)
    assert hinted.window_tokens == expected.window_tokens
    assert expected.stats.num_windows > 2
    assert hinted.stats.num_forwards < most * expected.stats.num_forwards
    assert hinted.stats.num_hinted_accepted > 0


def test_a_hint_that_the_target_cannot_tokenize_is_ignored(monkeypatch):
    def refuse(model: ScriptedModel, text: str, *, after_space: bool = True) -> tuple[int, ...]:
        if text:
            raise UnsupportedOption("no tokenizer")
        return ()

    monkeypatch.setattr(ScriptedModel, "tokenize", refuse)
    hinted = transcribe(Mode.FULL, "any text")
    assert hinted.window_tokens == own_text().window_tokens
    assert hinted.stats.num_hinted == 0


def decode(hint: str = "", resume: Resume | None = None) -> tuple[list[Window], list[list[int]], int]:
    """Decode with the target alone; return its windows, their tokens, and the accepted tokens of a hint."""
    verifier = Verifier(ScriptedModel(seed=SEED))
    verifier.open("session", Mode.TARGET_ONLY, DecodingOptions.greedy(language="en", hint=hint))
    start_sample = 0
    if resume is not None:
        verifier.submit("session", resume)
        start_sample = resume.window.start_sample - CONTEXT_SAMPLES
    pcm = PCM[start_sample * 2 :]
    verifier.submit("session", AudioChunk(start_sample, pcm, is_last=True))
    windows, tokens, num_hinted = [], [], 0
    while True:
        for _, event in verifier.step():
            match event:
                case Finished():
                    return windows, tokens, num_hinted
                case WindowOpened(window=window):
                    windows.append(window)
                    tokens.append([])
                case Commit():
                    tokens[-1] += event.tokens
                    num_hinted += min(event.num_accepted, event.num_hinted)


@pytest.mark.parametrize("has_previous", [True, False])
def test_a_session_that_is_resumed_finds_its_place_in_the_hint(has_previous):
    windows, tokens, _ = decode()
    hint = "".join(words_of(own_text()))
    previous = text_tokens(tokens[0]) if has_previous else ()
    resume = Resume(windows[1], (), previous=previous)
    _, resumed, num_hinted = decode(hint, resume)
    assert resumed == tokens[1:]
    assert num_hinted > 0.8 * sum(map(len, resumed))


@settings(max_examples=examples(20, 400), deadline=None)
@given(
    mode=st.sampled_from([Mode.SYNC, Mode.PIPELINED, Mode.FULL, Mode.ONE_PROCESS]),
    kind=st.sampled_from(KINDS),
    share=st.sampled_from([0, 0.1, 0.5, 1]),
    text=st.just("") | st.text(max_size=200),
    seed=st.integers(0, 100),
    timestamps=st.booleans(),
)
def test_with_any_hint_and_any_draft_the_text_is_the_targets(mode, kind, share, text, seed, timestamps):
    expected = own_text(timestamps=timestamps)
    hint = text or corrupted(words_of(expected), share, seed)
    edit_block = Interference(kind, seed, vocabulary_size=len(VOCABULARY))
    hinted = transcribe(mode, hint, edit_block=edit_block, timestamps=timestamps)
    assert hinted.window_tokens == expected.window_tokens
    assert hinted.segments == expected.segments
