"""Simulations with chosen rates of errors, and with given hints."""

from __future__ import annotations

import pytest

from experiments.common.replay.trace import Decoding, Trace
from experiments.latency.commands.errors import processes, with_errors
from experiments.latency.prediction.fit import acceptance_of, realigned_of
from experiments.latency.sweep.hint_text import simulated_words
from experiments.latency.sweep.models import Models
from specwhisper.errors import InvalidRequest
from specwhisper.transcription.vocabulary import Vocabulary

VOCABULARY = Vocabulary(
    tokens=(
        *(f"\u0120w{n}" for n in range(10)),
        "<|endoftext|>",
        "<|startoftranscript|>",
        "<|0.00|>",
        "<|0.02|>",
    ),
    end_of_text=10,
    start_of_transcript=11,
    no_timestamps=None,
    timestamp_begin=12,
    max_length=448,
)


def decoding(*tokens: int) -> Decoding:
    zeros = (0.0,) * len(tokens)
    return Decoding("", 0, "", (), 0.0, tokens, zeros, zeros)


def trace() -> Trace:
    """Return a trace of a draft that is always right."""
    return Trace("", "", "", "", "", "", tuple(decoding(*(n % 10 for n in range(200)), 10) for _ in range(5)))


def test_without_rates_the_errors_are_the_pairs_own():
    assert [made for _, made in with_errors(trace(), None, "0.8", 0.0, 0)] == [trace()]


def test_each_combination_of_rates_has_a_trace():
    found = list(with_errors(trace(), "0.7,0.9", "0,0.8", 0.0, 0))
    assert [name for name, _ in found] == [
        "alpha 0.7, beta 0",
        "alpha 0.7, beta 0.8",
        "alpha 0.9, beta 0",
        "alpha 0.9, beta 0.8",
    ]
    for name, made in found:
        _, alpha, _, beta = name.replace(",", "").split()
        assert acceptance_of(made.decodings) == pytest.approx(float(alpha), abs=0.03)
        assert realigned_of(made.decodings) == pytest.approx(float(beta) * float(alpha), abs=0.12)


@pytest.mark.parametrize(("acceptance", "realigns"), [("", "0"), ("2", "0"), ("a", "0"), ("0.5", "-1")])
def test_a_rate_is_a_share(acceptance, realigns):
    with pytest.raises(InvalidRequest, match="shares from 0 to 1"):
        list(with_errors(trace(), acceptance, realigns, 0.0, 0))


def test_words_of_a_simulated_text_are_whole_and_without_times():
    vocabulary = Vocabulary(
        tokens=("\u0120a", "b", "\u0120c", ".", "<|endoftext|>", "<|startoftranscript|>", "<|0.00|>"),
        end_of_text=4,
        start_of_transcript=5,
        no_timestamps=None,
        timestamp_begin=6,
        max_length=448,
    )
    assert simulated_words((6, 0, 1, 2, 6, 4), vocabulary) == ["0 1", "2"]
    assert simulated_words((0, 1, 3, 2), vocabulary) == ["0 1 3", "2"]


def test_a_replays_draft_may_make_chosen_errors():
    (errors,) = processes("0.85", "0.8", 5.0)
    models = Models("replay-small", "demo-target", "demo-draft-tiny", errors=errors)
    assert str(models.errors) == "alpha 0.85, beta 0.8 for 5 tokens"
    with pytest.raises(InvalidRequest, match="--acceptance is for a replay"):
        Models("demo", "demo-target", "demo-draft-tiny", errors=errors)
