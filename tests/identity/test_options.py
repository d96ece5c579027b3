"""Every option of Whisper's decoding, where it binds, with speculation on: the text is transformers' own."""

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from experiments.common.inline_pair import InlinePair
from experiments.exactness import oracle
from experiments.exactness.cases import DISTIL, EN40, OPTIONS, Case
from experiments.exactness.comparison import differences
from experiments.exactness.prepared import Prepared, prepared
from specwhisper.model.model import Model
from specwhisper.types import Mode
from tests.interference import Interference

CASES = {case.name: case for case in OPTIONS}
# By day an option of each kind; the others, and combinations, run at night.
BY_DAY = {
    "previous-text",
    "fallback-by-log-prob",
    "no-speech",
    "language-detection",
    "word-times",
    "zeros-after-the-audio",
}
HINTED_BY_DAY = {"previous-text"}
RUNS = (
    (Mode.FULL, 4, "noisy", "normal"),
    (Mode.ONE_PROCESS, 7, "older", "normal"),
    (Mode.PIPELINED, 3, "shorter", "shuffled"),
    (Mode.SYNC, 3, "stranger", "garbage"),
)


def by_day_if_chosen(names: Iterable[str], chosen: Container[str] = BY_DAY) -> list[Any]:
    """Return the names of cases; the others than those chosen run at night."""
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.nightly) for name in names]


def split(
    made: Prepared, mode: Mode, gamma: int, draft: str, kind: str, target: Model | None = None
) -> InlinePair:
    return InlinePair(
        target or made.steered(2),
        made.draft(draft, 2 if target is None else target.num_slots),
        mode=mode,
        gamma=gamma,
        edit_block=Interference(kind, gamma, vocabulary_size=len(made.tokens)),
    )


def runs() -> Iterator[Any]:
    """Yield every option with every kind of run; by day an option of each kind with one of them."""
    for (number, case), (place, run) in product(enumerate(OPTIONS), enumerate(RUNS)):
        is_by_day = case.name in BY_DAY and (number + place) % len(RUNS) == 0
        marks = () if is_by_day else pytest.mark.nightly
        yield pytest.param(case, *run, id=f"{case.name}-{run[0]}", marks=marks)


@pytest.mark.parametrize(("case", "mode", "gamma", "draft", "kind"), list(runs()))
def test_every_option_equals_transformers(case: Case, mode: Mode, gamma: int, draft: str, kind: str):
    made = prepared(case)
    batch = made.batch
    texts = split(made, mode, gamma, draft, kind).transcribe(batch.pcms, batch.options)
    assert differences(texts, batch.oracles, made.tokenizer) == []


def hint_of(made: Prepared, expected: oracle.OracleText) -> str:
    """Return most of a text's words, and others in place of every fifth one."""
    tokens = [token for window in expected.window_tokens for token in window]
    tokens = [token if place % 5 else len(tokens) for place, token in enumerate(tokens)]
    return made.tokenizer.decode(tokens, skip_special_tokens=True)


@pytest.mark.parametrize("name", by_day_if_chosen(CASES, HINTED_BY_DAY))
def test_a_given_hint_changes_no_option(name: str):
    made = prepared(CASES[name])
    batch = made.batch
    options = [
        replace(each, hint=hint_of(made, expected))
        for each, expected in zip(batch.options, batch.oracles, strict=True)
    ]
    texts = split(made, Mode.FULL, 4, "noisy", "normal").transcribe(batch.pcms, options)
    assert differences(texts, batch.oracles, made.tokenizer) == []
    without = split(made, Mode.FULL, 4, "noisy", "normal").transcribe(batch.pcms, batch.options)
    assert sum(each.stats.num_hinted for each in texts) > sum(each.stats.num_hinted for each in without)


def shared_encoder_runs() -> Iterator[Any]:
    """Yield the distilled pairs with every mode; by day the first pair with one mode."""
    for (num_slots, case), (place, run) in product(enumerate(DISTIL, 1), enumerate(RUNS)):
        marks = () if num_slots == 1 and place == 0 else pytest.mark.nightly
        yield pytest.param(case, num_slots, *run[:2], id=f"{case.name}-{run[0]}", marks=marks)


@pytest.mark.parametrize(("case", "num_slots", "mode", "gamma"), list(shared_encoder_runs()))
def test_a_shared_encoder_changes_nothing(case: Case, num_slots: int, mode: Mode, gamma: int):
    made = prepared(case)
    batch = made.batch
    target, draft = made.pair("distil", num_slots)
    texts = InlinePair(target, draft, mode=mode, gamma=gamma).transcribe(batch.pcms, batch.options)
    assert differences(texts, batch.oracles, made.tokenizer) == []


@pytest.mark.parametrize(
    "name",
    by_day_if_chosen(name for name in CASES if not name.startswith("word-times")),  # they change no token
)
def test_every_option_binds(name: str):
    made = prepared(CASES[name])
    plain = replace(EN40, language="fr" if made.options.language is None else "en")
    for option in ("max_new_tokens", "timestamps"):
        plain = replace(plain, **{option: getattr(made.options, option)})
    without = InlinePair(made.target(2)).transcribe(
        made.pcms, [replace(plain, log_mel_max=o.log_mel_max) for o in made.batch.options]
    )
    assert [t.window_tokens for t in without] != [o.window_tokens for o in made.batch.oracles]


def test_words_are_found():
    made = prepared(CASES["word-times"])
    texts = InlinePair(made.target(2)).transcribe(made.pcms, made.options)
    words = [word for text in texts for segment in text.segments for word in segment.words]
    assert len(words) > 3
    assert all(word.start_s <= word.end_s for word in words)


def test_a_lossy_threshold_keeps_more_and_changes_the_text():
    made = prepared(CASES["previous-text"])
    texts = {}
    for threshold in (None, 0.02):
        options = replace(EN40, acceptance_threshold=threshold)
        engine = InlinePair(made.target(2), made.draft("noisy", 2))
        texts[threshold] = engine.transcribe(made.pcms, options)[0]
    assert texts[0.02].stats.acceptance_rate > texts[None].stats.acceptance_rate
    assert texts[0.02].window_tokens != texts[None].window_tokens
