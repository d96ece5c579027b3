"""Simulations with chosen rates of errors, and with given hints."""

from __future__ import annotations

import pytest

from experiments.common.replay.trace import Decoding, Trace
from experiments.latency.commands.errors import with_errors
from experiments.latency.prediction.fit import acceptance_of, hint_survival, realigned_of
from experiments.latency.sweep.hint_text import simulated_words
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
    assert [made for _, made in with_errors(trace(), None, "0.8", 0)] == [trace()]


def test_each_combination_of_rates_has_a_trace():
    found = list(with_errors(trace(), "0.7,0.9", "0,0.8", 0))
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
        list(with_errors(trace(), acceptance, realigns, 0))


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
    assert simulated_words((0, 1, 3, 2), vocabulary) == ["0 1", "3", "2"]


def test_a_hint_without_errors_is_wrong_only_where_a_segment_ends():
    window = decoding(12, 1, 2, 3, 13, 13, 4, 5, 13, 10)
    survival = hint_survival([window], VOCABULARY, "1 2 3 4 5")
    # Runs of 5, 4 and 1: a start is 0 or the end before it, but an end and the last token are not known.
    assert survival == pytest.approx([1, 2 / 3, 2 / 3, 2 / 3, 1 / 3])


def test_a_hint_with_an_error_is_right_again_after_it():
    window = decoding(12, *range(10), 10)
    survival = hint_survival([window], VOCABULARY, "0 1 2 9 4 5 6 7 8 9")
    assert survival == pytest.approx([1] * 5 + [0.5] * 2)  # runs of 5 and 7
