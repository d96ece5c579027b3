"""Whatever the draft, the mode and the network do, the text is the one plain transformers writes."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from operator import attrgetter
from typing import Any

import pytest

from experiments.common.inline_pair import InlinePair
from experiments.common.models.checkpoints import checkpoint_from_model
from experiments.common.models.scripted import ScriptedModel
from experiments.exactness.cases import OPTIONS, SHAPES, Case
from experiments.exactness.comparison import differences
from experiments.exactness.oracle import OracleText, OracleWindow, Steered
from experiments.exactness.prepared import DRAFTS, Prepared, is_long, prepared, recording
from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import Row
from specwhisper.options import DecodingOptions
from specwhisper.types import AudioChunk, Mode
from tests.identity.test_options import split
from tests.interference import KINDS
from tests.nightly import NIGHTLY, at_night, mostly_nightly

# transformers' word times fail on some of the tokens of a model when none are suppressed.
CASES = (*SHAPES, *OPTIONS)
WORDLESS = tuple(case for case in CASES if not case.options.word_timestamps)
MODES = (Mode.SYNC, Mode.PIPELINED, Mode.FULL, Mode.ONE_PROCESS)
# By day every third shape, two windows at most and three draft lengths.
SHAPES_BY_DAY = tuple(
    replace(case, lengths_s=tuple(min(length_s, 35.0) for length_s in case.lengths_s))
    for case in SHAPES[1::3]
)
# test_options has the options by day.
BY_DAY_AND_NIGHT = [*SHAPES_BY_DAY, *at_night(CASES)]


def rows(shapes: Sequence[Case], gammas: Sequence[int], *, num_turns: int, marks: Any = ()) -> Iterator[Any]:
    """Yield runs: in each turn every mode meets every kind of interference and every draft.

    Shapes and draft lengths go round.
    """
    meetings = product(range(num_turns), enumerate(MODES), enumerate(KINDS))
    for i, (turn, (m, mode), (k, kind)) in enumerate(meetings):
        shape, gamma = shapes[i % len(shapes)], gammas[i % len(gammas)]
        draft = DRAFTS[(k + 2 * m - turn) % len(DRAFTS)]  # so it meets most shapes and draft lengths too
        name = f"{shape.name}-{mode}-gamma{gamma}-{kind}-{draft}"
        yield pytest.param(shape, mode, gamma, kind, draft, id=name, marks=marks)


@pytest.mark.parametrize("case", BY_DAY_AND_NIGHT, ids=attrgetter("name"))
def test_the_target_alone_equals_transformers(case: Case):
    made = prepared(case)
    batch, target = made.batch, made.steered(2)
    texts = InlinePair(target).transcribe(batch.pcms, batch.options)
    assert differences(texts, batch.oracles, made.tokenizer) == []
    ties = sum(len(window.ties) for text in batch.oracles for window in text.windows)
    assert target.num_steered <= ties


@pytest.mark.parametrize(
    ("case", "mode", "gamma", "kind", "draft"),
    [
        *rows(SHAPES_BY_DAY, (1, 4, 8), num_turns=1),
        *rows(SHAPES, range(1, 17), num_turns=4, marks=pytest.mark.nightly),
    ],
)
def test_every_mode_equals_transformers(case: Case, mode: Mode, gamma: int, kind: str, draft: str):
    made = prepared(case)
    batch, num_slots = made.batch, 1 + gamma % 4
    engine = split(made, mode, gamma, draft, kind, made.steered(num_slots))
    assert differences(engine.transcribe(batch.pcms, batch.options), batch.oracles, made.tokenizer) == []


@pytest.mark.nightly
def test_the_cases_are_many_clear_and_different():
    texts = [(case, text) for case in CASES for text in prepared(case).batch.oracles]
    windows = [(case, window) for case, text in texts for window in text.windows]
    margins = [margin for _, window in windows for margin in window.margins]
    ended = sum(w.tokens[-1] == prepared(case).checkpoint.vocabulary.end_of_text for case, w in windows)
    assert len(windows) >= 50
    assert sum(len(window.ties) for _, window in windows) <= 0.005 * len(margins)
    assert 0.15 * len(windows) < ended < 0.85 * len(windows)
    assert any(is_long(pcm) for case in CASES for pcm in prepared(case).pcms)
    for case in CASES:
        assert statistics.median(m for w in windows if w[0] is case for m in w[1].margins) > 0.1


@pytest.mark.parametrize("case", mostly_nightly([SHAPES_BY_DAY[0], *WORDLESS]), ids=attrgetter("name"))
@pytest.mark.parametrize("lists", ["suppress_tokens", "begin_suppress_tokens"])
def test_the_suppress_lists_bind(case: Case, lists: str, monkeypatch):
    made = prepared(case)
    batch = made.batch
    monkeypatch.setattr(made.model.generation_config, lists, None)
    free = [made.oracle(pcm, options) for pcm, options in zip(batch.pcms, batch.options, strict=True)]
    assert [text.window_tokens for text in free] != [text.window_tokens for text in batch.oracles]


@pytest.mark.parametrize("case", BY_DAY_AND_NIGHT, ids=attrgetter("name"))
def test_a_draft_of_the_same_weights_is_always_right(case: Case):
    made = prepared(case)
    batch = made.batch
    engine = InlinePair(made.target(2), made.draft("itself", 2))
    for text in engine.transcribe(batch.pcms, batch.options):
        assert text.stats.num_accepted == text.stats.num_verified > 0


@pytest.mark.nightly
def test_drafts_are_of_every_quality():
    made = prepared(CASES[0])
    rates = {}
    for kind in DRAFTS:
        engine = InlinePair(made.target(3), made.draft(kind, 3))
        statistics_ = [text.stats for text in engine.transcribe(made.batch.pcms, made.batch.options)]
        rates[kind] = sum(s.num_accepted for s in statistics_) / sum(s.num_verified for s in statistics_)
    assert rates["itself"] == 1.0
    assert 0.3 < rates["noisy"] < 0.95
    assert 0.3 < rates["older"] < 1.0
    assert rates["stranger"] < 0.1
    assert 0 < rates["foreign"] < 0.3


def test_recordings_side_by_side_equal_each_alone():
    made = prepared(SHAPES_BY_DAY[1])
    pcms = [recording(7, length_s) for length_s in (0.5, 31.0, 3.0, 29.99)]
    alone = [InlinePair(made.target(1)).transcribe([pcm], made.options)[0].window_tokens for pcm in pcms]
    for mode in MODES if NIGHTLY else (Mode.PIPELINED, Mode.FULL):
        engine = InlinePair(made.target(len(pcms)), made.draft("noisy", len(pcms)), mode=mode)
        assert [text.window_tokens for text in engine.transcribe(pcms, made.options)] == alone


def test_the_loudest_moment_of_the_whole_recording_matters():
    """Long recordings reach the target with it, as the client sends it; this shows that it is needed."""
    differs = []
    for made in map(prepared, SHAPES if NIGHTLY else SHAPES_BY_DAY):
        texts = InlinePair(made.target(2)).transcribe(made.pcms, made.options)
        differs += [
            text.window_tokens != expected.window_tokens
            for pcm, text, expected in zip(made.pcms, texts, made.batch.oracles, strict=True)
            if is_long(pcm)
        ]
    assert any(differs)


@pytest.mark.nightly
def test_the_checkpoints_own_limit_holds_where_the_caller_gives_none():
    options = DecodingOptions.greedy(language="en", timestamps=False)
    made = Prepared(replace(SHAPES[-2], options=options, lengths_s=(3.0,), end_logit=-9.0))
    made.model.generation_config.max_length = 12  # transformers adds the prompt to it
    limit = checkpoint_from_model(made.model, made.tokens, name="limited").max_new_tokens
    text = InlinePair(made.target(1), max_new_tokens=limit).transcribe(made.pcms, made.options)
    assert differences(text, made.batch.oracles) == []
    assert [len(tokens) for tokens in text[0].window_tokens] == [12]


def test_a_tie_is_decided_by_the_oracle():
    silence = Recording()
    silence.append(AudioChunk(0, bytes(3200), is_last=True))
    script = ScriptedModel()
    undecided = OracleWindow(0, (5, 6, 7), (1.0, 0.5e-4, 1.0))
    model = Steered(script, {1600: OracleText([undecided])})
    model.encode(0, silence, 0)
    own = ScriptedModel()
    own.encode(0, silence, 0)
    row = Row(0, [25, 5, 6], 2, [], timestamps=True)
    expected = own.score([row])[0].tokens
    assert expected[1] != 6
    assert model.score([row])[0].tokens == [expected[0], 6, expected[2]]
    assert model.num_steered == 1
