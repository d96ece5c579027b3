"""With ``multilingual`` each window is what transformers writes of it, in the language it detects."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import Shape
from experiments.exactness.cases import Case
from experiments.exactness.oracle import transcribe_window
from experiments.exactness.prepared import Prepared
from specwhisper.options import DecodingOptions
from tests.identity.test_options import RUNS, split
from tests.nightly import mostly_nightly

MAX_TOKENS = 20
SEEDS = mostly_nightly([34, 32])


@cache
def made_with(seed: int) -> Prepared:
    shape = Shape(seed=seed, decoder_layers=2)
    return Prepared(
        Case("multilingual", shape, (95.0, 3.0), DecodingOptions.greedy(max_new_tokens=MAX_TOKENS))
    )


def options_of(made: Prepared) -> list[DecodingOptions]:
    return [replace(options, multilingual=True) for options in made.recording_options]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_window_has_the_language_and_text_that_transformers_finds_in_it(seed):
    made = made_with(seed)
    text = InlinePair(made.target(2)).transcribe(made.pcms, options_of(made))[0]
    languages = {segment.seek: segment.language for segment in text.segments}
    assert len(set(languages.values())) > 1
    windows = [
        transcribe_window(made.model, made.pcms[0], start_frame, MAX_TOKENS) for start_frame in languages
    ]
    assert list(languages.values()) == [language for language, _ in windows]
    assert list(text.window_tokens) == [tokens for _, tokens in windows]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("run", RUNS)
def test_every_mode_writes_the_targets_own_text(seed, run):
    made = made_with(seed)
    alone = InlinePair(made.target(2)).transcribe(made.pcms, options_of(made))
    texts = split(made, *run, made.target(2)).transcribe(made.pcms, options_of(made))
    assert [text.window_tokens for text in texts] == [text.window_tokens for text in alone]
    assert [[s.language for s in text.segments] for text in texts] == [
        [s.language for s in text.segments] for text in alone
    ]
