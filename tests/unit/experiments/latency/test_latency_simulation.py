"""The service's engines in simulated time: what modes, corrections and hints cost on a slow link."""

from dataclasses import replace
from random import Random

import pytest

from experiments.common.models.scripted import END
from experiments.common.models.scripted import VOCABULARY as SHORT
from experiments.common.replay.trace import Decoding
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs, simulate_session, simulate_together
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode
from tests.nightly import mostly_nightly

VOCABULARY = replace(SHORT, max_length=4000)
STEP_S = 0.05
COSTS = Costs(target=Cost(STEP_S), draft=Cost(STEP_S / 5))
WRONG = 3


def decoding(*agrees: bool) -> Decoding:
    """Return a window in which the draft is right at the given positions, and wrong once it diverged."""
    tokens = (*[1 + i % 2 for i in range(len(agrees) - 1)], END)
    return Decoding(
        recording="",
        start_frame=0,
        audio="",
        prompt=(),
        temperature=0.0,
        tokens=tokens,
        log_probs=(0.0,) * len(tokens),
        margins=(1.0,) * len(tokens),
        divergences={i: (WRONG,) * 32 for i, agreed in enumerate(agrees) if not agreed},
    )


def time_per_step(
    decodings, mode=Mode.FULL, *, round_trip=0.0, gamma=None, costs=COSTS, vocabulary=VOCABULARY, **options
):
    """Return the time of a token over that of a forward pass of the target alone."""
    session = simulate_session(
        decodings,
        vocabulary,
        costs,
        DraftLength(mode, gamma),
        round_trip_s=round_trip * STEP_S,
        options=DecodingOptions.greedy(language="en", **options),
    )
    return session.time_per_token_s / STEP_S


@pytest.mark.parametrize("mode", [Mode.SYNC, Mode.PIPELINED, Mode.FULL])
@pytest.mark.parametrize("round_trip", [0.5, 5])
def test_a_draft_measures_true_times(mode, round_trip):
    costs = replace(COSTS, message_s=0.002)
    session = simulate_session(
        [decoding(*[True] * 200)],
        VOCABULARY,
        costs,
        DraftLength(mode, None),
        round_trip_s=round_trip * STEP_S,
    )
    statistics = session.statistics
    on_the_way_s = statistics.network_ns / 1e9 / statistics.num_answers
    waits_s = 0.0 if mode is Mode.SYNC else COSTS.draft.pass_s  # at most, for the end of a draft step
    expected_s = round_trip * STEP_S + 0.004
    assert 0.98 * expected_s <= on_the_way_s <= 1.02 * expected_s + waits_s
    if mode is Mode.SYNC:
        assert statistics.num_answers == statistics.num_blocks
    assert statistics.num_draft_steps >= statistics.num_drafted
    step_s = statistics.draft_ns / 1e9 / statistics.num_draft_steps
    assert step_s == pytest.approx(COSTS.draft.pass_s, rel=1e-3)


@pytest.mark.parametrize("gamma", [1, 3, 4])
@pytest.mark.parametrize("round_trip", [0, 2.5])
def test_a_block_of_sync_takes_its_draft_steps_a_round_trip_and_a_forward_pass(gamma, round_trip):
    """Without a wrong candidate a block yields gamma + 1 tokens; the window ends with a whole block."""
    simulated = time_per_step(
        [decoding(*[True] * 8 * (gamma + 1))], Mode.SYNC, round_trip=round_trip, gamma=gamma
    )
    assert simulated == pytest.approx((gamma / 5 + round_trip + 1) / (gamma + 1), rel=0.02)


@pytest.mark.parametrize(
    ("mode", "gamma", "round_trip", "accepted", "expected"),
    [
        (Mode.PIPELINED, 8, 2.5, 0.9, 0.730),
        (Mode.FULL, 1, 5, 0.9, 0.702),
        (Mode.FULL, 1, 1.25, 0.5, 0.903),
    ],
)
def test_modes_are_as_fast_as_they_were(mode, gamma, round_trip, accepted, expected):
    random = Random(5)
    decodings = [decoding(*(random.random() < accepted for _ in range(400)))]
    found = time_per_step(decodings, mode, round_trip=round_trip, gamma=gamma)
    assert found == pytest.approx(expected, rel=0.05)


def test_a_chain_after_a_correction_is_not_dropped_as_stale():
    """Blocks of one token on a slow link: each outdated candidate contradicts a commit by itself."""
    agrees = [i % 20 != 2 for i in range(400)]
    ones, fours = (time_per_step([decoding(*agrees)], Mode.FULL, round_trip=5, gamma=g) for g in (1, 4))
    assert ones < fours < 0.75


@pytest.mark.parametrize("round_trip", mostly_nightly([0.5, 0, 2.5, 6]))
@pytest.mark.parametrize(
    ("num_sessions", "costs"),
    mostly_nightly(
        [
            (8, Costs(target=Cost(STEP_S, 0.0001, 0.001), draft=Cost(STEP_S / 4))),
            (24, Costs(target=Cost(0.008, 0.000005, 0.00005), draft=Cost(0.0025), handling_s=0.0001)),
            (24, Costs(target=Cost(STEP_S, 0.0001, 0.001), draft=Cost(STEP_S / 4))),
        ]
    ),
)
def test_drafts_do_not_slow_down_many_sessions(num_sessions, costs, round_trip):
    """A delayed forward pass, a session left out of one, and messages all delay other sessions."""
    random = Random(5)
    windows = [decoding(*(random.random() < 0.7 for _ in range(60))) for _ in range(5)]
    target_only, full = (
        simulate_together(
            windows,
            VOCABULARY,
            costs,
            DraftLength(mode, None),
            num_sessions=num_sessions,
            per_draft_server=4,
            num_windows=4,
            round_trip_s=round_trip * costs.target.pass_s,
        )
        for mode in (Mode.TARGET_ONLY, Mode.FULL)
    )
    # Messages keep the target's interpreter busy; here nothing realigns, so that they bring little from afar.
    assert full > (0.82 if costs.handling_s and round_trip > 5 else 0.96) * target_only
    if round_trip < 1:
        assert full > 1.1 * target_only


NUM_WORDS = 2_000
WORDS = Vocabulary(
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
        tokens = (*(random.randrange(NUM_WORDS) for _ in range(200)), WORDS.end_of_text)
        zeros = (0.0,) * len(tokens)
        made.append(Decoding("", 0, str(number), (number,), 0.0, tokens, zeros, zeros))
    known, errors = sorted({token for each in made for token in each.tokens}), Random(1)
    return tuple(with_errors(each, known, acceptance, realigns, errors) for each in made)


def time_with_words(decodings, round_trip: float, *, token_share: float = 0.03, **options) -> float:
    costs = replace(COSTS, target=Cost((1 - token_share) * STEP_S, token_share * STEP_S))
    return time_per_step(decodings, round_trip=round_trip, costs=costs, vocabulary=WORDS, **options)


@pytest.mark.parametrize(
    ("acceptance", "realigns", "round_trip", "expected"),
    [(0.92, 0.8, 1.25, 0.282), (0.7, 0.5, 10.0, 0.927)],
)
def test_full_with_realignment_is_as_fast_as_it_was(acceptance, realigns, round_trip, expected):
    found = time_with_words(windows(acceptance, realigns), round_trip)
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
    times = [time_with_words(decodings, round_trip, hint=hint) for round_trip in (0.0, 10.0)]
    assert max(times) < 0.35
    assert max(times) - min(times) < 0.05


def test_a_hint_with_a_foreword_is_found():
    decodings = windows(0.0, 0.0)
    foreword = " ".join(str(n * 7 % NUM_WORDS) for n in range(500))
    hint = f"{foreword} {hint_of(decodings, 0.0)}"
    assert time_with_words(decodings, 1.0, hint=hint) < 0.5


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
        time_with_words(decodings, 5.0, token_share=token_share, hint=text) for text in (hint, "")
    )
    assert with_hint <= min(1.0, without) + 0.02
