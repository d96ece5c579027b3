"""The order of measurements, the comparison of texts, and the way from measurements to ratios."""

from collections import Counter

import pytest

from experiments.baselines.measurement import (
    ASSISTED,
    TRANSFORMERS,
    Arm,
    Measurement,
    Taken,
    all_arms,
    differences,
    keep_text,
    schedule,
)
from experiments.baselines.summary import bars, ratios, summarise
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode


def test_every_round_takes_every_arm_with_every_sample_in_a_new_order():
    arms, samples = all_arms(two_threads=True), ["a", "b"]
    taken = list(schedule(arms, samples, 6, seed=1))
    assert Counter(taken) == Counter(
        (number, arm, sample) for number in range(6) for arm in arms for sample in samples
    )
    assert [number for number, _, _ in taken] == sorted(number for number, _, _ in taken)
    orders = {tuple(arm for n, arm, sample in taken if n == number and sample == "a") for number in range(6)}
    assert len(orders) == 6
    assert taken == list(schedule(arms, samples, 6, seed=1))


def test_assisted_generation_only_runs_without_timestamps():
    assert [arm.timestamps for arm in all_arms(two_threads=False) if arm.system == ASSISTED] == [False]
    assert {mode for mode in Mode} < {arm.system for arm in all_arms(two_threads=False) if arm.timestamps}


def test_special_tokens_are_left_out():
    assert keep_text([5, 100, 7, 101, 200, 203, 100], end_of_text=100, timestamp_begin=200) == (
        5,
        7,
        200,
        203,
    )


def taken(number, system, tokens=(1, 2), wall_s=1.0, encode_s=0.0, sample="a"):
    statistics = None
    if system in list(Mode):
        statistics = SpeculationStatistics(
            num_committed=10, num_windows=1, num_forwards=4, num_verified=8, num_accepted=6
        )
    return Taken(number, Arm(system, True), sample, Measurement(tokens, wall_s, encode_s, statistics))


@pytest.mark.parametrize(("tokens", "position"), [((1, 3), 1), ((1,), 1), ((1, 2, 3), 2), ((), 0)])
def test_a_text_that_differs_is_named_with_its_place(tokens, position):
    found = differences(
        [
            taken(0, Mode.FULL, tokens),
            taken(0, Mode.SYNC),
            taken(0, Mode.TARGET_ONLY),
            taken(0, TRANSFORMERS),
        ]
    )
    assert found == {
        Arm(Mode.FULL, True): [f"full with timestamps, a, round 0: token {position} differs from target-only"]
    }


def test_times_are_per_token_of_target_only_and_ratios_pair_rounds():
    rounds = []
    for number, slowdown in enumerate((1.0, 3.0, 1.0, 1.0)):
        rounds += [
            taken(number, TRANSFORMERS, wall_s=4 * slowdown, encode_s=1 * slowdown),
            taken(number, Mode.TARGET_ONLY, wall_s=2 * slowdown),
            taken(number, Mode.FULL, wall_s=1.5 * slowdown, encode_s=1 * slowdown),
        ]
    summaries = summarise(rounds)
    full = summaries[Arm(Mode.FULL, True)]
    assert full.total_ms == pytest.approx((150, 450, 150, 150))
    assert full.decode_ms == pytest.approx((50, 150, 50, 50))
    assert full.tokens_per_forward == 2.5
    assert full.acceptance_rate == 0.75
    total, decode = ratios(summaries, full.arm, TRANSFORMERS, seed=0)
    assert (total.value, total.low, total.high) == pytest.approx((0.375,) * 3)
    assert decode.value == pytest.approx(0.5 / 3)


@pytest.mark.parametrize(("one_process_s", "holds"), [(0.9, True), (1.1, False)])
def test_bars_hold_where_the_promised_modes_beat_transformers(one_process_s, holds):
    rounds = []
    for timestamps in (True, False):
        for system, wall_s in (
            (TRANSFORMERS, 1.0),
            (Mode.TARGET_ONLY, 0.7),
            (Mode.FULL, 0.35),
            (Mode.ONE_PROCESS, one_process_s),
        ):
            one = taken(0, system, wall_s=wall_s)
            rounds.append(Taken(0, Arm(system, timestamps), one.sample, one.measurement))
    found = bars(summarise(rounds), seed=0)
    assert [bar.holds for bar in found] == [holds, True, holds, True]
