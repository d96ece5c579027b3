"""Hints in simulated time: what a correction costs on a slow link."""

from dataclasses import replace
from random import Random

import pytest

from experiments.common.replay.trace import Decoding
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs, simulate_session
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode
from tests.nightly import mostly_nightly

STEP_S = 0.05
COSTS = Costs(target=Cost(0.97 * STEP_S, 0.03 * STEP_S), draft=Cost(0.2 * STEP_S))
NUM_WORDS = 2_000
VOCABULARY = Vocabulary(
    tokens=(*(f"w{n}" for n in range(NUM_WORDS)), "<|endoftext|>", "<|startoftranscript|>", "<|0.00|>"),
    end_of_text=NUM_WORDS,
    start_of_transcript=NUM_WORDS + 1,
    no_timestamps=None,
    timestamp_begin=NUM_WORDS + 2,
    max_length=4_000,
)


def other(token: int, known: list[int], random: Random) -> int:
    while (wrong := random.choice(known)) == token:
        pass
    return wrong


def with_errors(
    decoding: Decoding, known: list[int], acceptance: float, realigns: float, random: Random
) -> Decoding:
    """Return a window in which a draft errs.

    It is right with the probability ``acceptance`` after the target's own text. What it writes after an error
    is the target's text again with the probability ``realigns``, up to its own next error.
    """
    tokens = decoding.tokens
    divergences: dict[int, tuple[int, ...]] = {}
    is_wrong = [random.random() > acceptance for _ in tokens]
    for position in (place for place in reversed(range(len(tokens))) if is_wrong[place]):
        written, does_realign = [other(tokens[position], known, random)], random.random() < realigns
        for later in range(position + 1, len(tokens)):
            if does_realign and is_wrong[later]:
                written += divergences[later]
                break
            written.append(tokens[later] if does_realign else other(tokens[later], known, random))
        divergences[position] = tuple(written)
    return replace(decoding, divergences=divergences)


def windows(acceptance: float, realigns: float, num_windows: int = 4) -> tuple[Decoding, ...]:
    """Return windows of random words with a draft's errors."""
    random, made = Random(0), []
    for number in range(num_windows):
        tokens = (*(random.randrange(NUM_WORDS) for _ in range(200)), VOCABULARY.end_of_text)
        zeros = (0.0,) * len(tokens)
        made.append(Decoding("", 0, str(number), (number,), 0.0, tokens, zeros, zeros))
    known, errors = sorted({token for each in made for token in each.tokens}), Random(1)
    return tuple(with_errors(each, known, acceptance, realigns, errors) for each in made)


def time_per_step(
    decodings, round_trip: float, mode: Mode = Mode.FULL, *, token_share: float = 0.03, **options
) -> float:
    """Return the time of a token over that of a forward pass of the target alone."""
    target = Cost((1 - token_share) * STEP_S, token_share * STEP_S)
    session = simulate_session(
        decodings,
        VOCABULARY,
        replace(COSTS, target=target),
        DraftLength(mode, None),
        round_trip_s=round_trip * STEP_S,
        options=DecodingOptions.greedy(language="en", **options),
    )
    return session.time_per_token_s / STEP_S


@pytest.mark.parametrize(
    ("acceptance", "realigns", "round_trip", "expected"),
    [(0.92, 0.8, 1.25, 0.282), (0.7, 0.5, 10.0, 0.927), (0.85, 0.0, 0.0, 0.410)],
)
def test_full_with_realignment_is_as_fast_as_it_was(acceptance, realigns, round_trip, expected):
    found = time_per_step(windows(acceptance, realigns), round_trip)
    assert found == pytest.approx(expected, rel=0.05)


def hint_of(decodings, share: float) -> str:
    """Return the text of the windows with a share of wrong, missing and additional words."""
    random, words = Random(3), []
    for token in (token for decoding in decodings for token in decoding.tokens[:-1]):
        kept = [token]
        if random.random() < share:
            other = random.randrange(NUM_WORDS)
            kept = random.choice([[other], [], [token, other]])
        words += kept
    return " ".join(map(str, words))


def test_a_given_hint_makes_every_round_trip_the_same():
    decodings = windows(0.7, 0.0)
    hint = hint_of(decodings, 0.1)
    times = [time_per_step(decodings, round_trip, hint=hint) for round_trip in (0.0, 1.25, 5.0, 10.0)]
    assert max(times) < 0.35
    assert max(times) - min(times) < 0.05


def test_a_hint_with_a_foreword_is_found():
    decodings = windows(0.0, 0.0)
    foreword = " ".join(str(n * 7 % NUM_WORDS) for n in range(500))
    hint = f"{foreword} {hint_of(decodings, 0.0)}"
    assert time_per_step(decodings, 1.0, hint=hint) < 0.5


@pytest.mark.parametrize("kind", ["another text", "right, then wrong"])
@pytest.mark.parametrize("acceptance", mostly_nightly([0.85, 0.0]))
@pytest.mark.parametrize("token_share", mostly_nightly([0.15, 0.03]))
def test_a_bad_hint_costs_at_most_a_fiftieth(kind, acceptance, token_share):
    decodings = windows(acceptance, 0.0)
    hint = hint_of(decodings, 1.0)
    if kind == "right, then wrong":
        text = [token for decoding in decodings for token in decoding.tokens[:-1]]
        hint = " ".join(
            str(word)
            for n in range(0, len(text), 3)
            for word in (*text[n : n + 3], *range(n % 900, n % 900 + 9))
        )
    with_hint, without = (
        time_per_step(decodings, 5.0, token_share=token_share, hint=text) for text in (hint, "")
    )
    assert with_hint <= min(1.0, without) + 0.02
