"""Drafts by chosen error rates."""

from __future__ import annotations

from statistics import mean

import pytest

from experiments.common.replay.error_process import ErrorProcess
from experiments.common.replay.trace import Decoding

LENGTH = 4_000
TOKENS = tuple(n % 97 for n in range(LENGTH))
ZEROS = (0.0,) * LENGTH
DECODING = Decoding("", 0, "", (1,), 0.0, TOKENS, ZEROS, ZEROS)


@pytest.mark.parametrize("acceptance", [0.7, 0.92])
def test_the_draft_is_right_as_often_as_asked_for(acceptance):
    (made,) = ErrorProcess(acceptance).applied([DECODING], seed=1)
    right = [made.draft_after(TOKENS[:n])[0] == TOKENS[n] for n in range(LENGTH)]
    assert mean(right) == pytest.approx(acceptance, abs=0.02)


@pytest.mark.parametrize("realigns", [0.0, 0.8])
def test_its_continuation_holds_as_often_as_asked_for(realigns):
    (made,) = ErrorProcess(0.9, realigns).applied([DECODING], seed=1)
    followed = [
        texts[1] == TOKENS[at + 1]
        for at, texts in made.divergences.items()
        if len(texts) > 1 and at + 1 not in made.divergences
    ]
    assert mean(followed) == pytest.approx(realigns, abs=0.07)


def test_runs_have_the_length_asked_for():
    (made,) = ErrorProcess(0.98, 1.0, run_length=5.0).applied([DECODING], seed=1)
    runs = []
    for at, texts in made.divergences.items():
        later = list(zip(texts[1:], TOKENS[at + 1 :], strict=False))
        runs.append(next((n for n, (ours, theirs) in enumerate(later) if ours != theirs), len(later)))
    assert mean(runs) == pytest.approx(5.0, rel=0.3)


def test_the_same_seed_makes_the_same_errors():
    process = ErrorProcess(0.85, 0.5, 6.0)
    assert process.applied([DECODING], seed=2) == process.applied([DECODING], seed=2)
    assert process.applied([DECODING], seed=2) != process.applied([DECODING], seed=3)
