"""From runs to bars and broken promises: the comparisons with peers."""

import pytest

from experiments.peers.arms import FLOAT32, INT8, Arm, Run, System, arms_of_pair
from experiments.peers.summary import claims, differences, find_bars, is_broken
from experiments.real.__main__ import ALONE, PAIR, PEER, PEER_INT8, count_differences, ratio
from specwhisper.speculation.statistics import SpeculationStatistics


def arm(system, precision=FLOAT32, *, timestamps=False):
    return Arm(system, precision, timestamps)


def test_every_claim_is_of_arms_that_are_run():
    for claim in claims():
        assert {claim.ours, *claim.theirs} <= set(arms_of_pair(quick=False))
    assert {one.precision for one in arms_of_pair(quick=True)} == {"float32"}


@pytest.mark.parametrize(("ours_s", "holds"), [(0.39, True), (0.41, False)])
def test_a_claim_uses_the_intervals_upper_end_and_needs_its_peer(ours_s, holds):
    runs = {
        arm(system): [Run((slowdown * wall_s,), ((1,),)) for slowdown in (1.0, 3.0)]
        for system, wall_s in ((System.TRANSFORMERS, 1.0), (System.FULL, ours_s))
    }
    (bar,), open_claims = find_bars(runs)
    assert bar.holds is holds and "full over servers" in bar.name
    assert len(open_claims) == len([*claims()]) - 1


def test_ours_and_transformers_in_float32_must_equal_the_targets_text():
    same, other = [Run((1.0,), ((1, 2),))], [Run((1.0,), ((1, 2),)), Run((1.0,), ((1, 3),))]
    runs = {arm(system, precision): same for system in System for precision in (FLOAT32, INT8)}
    assert not differences(runs)
    unlike = [
        *(arm(System.FULL), arm(System.TRANSFORMERS)),
        *(arm(System.ONE_PROCESS, INT8), arm(System.ASSISTED), arm(System.FASTER_WHISPER)),
    ]
    different = differences(runs | dict.fromkeys(unlike, other))
    assert list(different) == [one for one in runs if one in unlike[:-1]]
    assert [one for one in different if is_broken(one)] == [arm(System.FULL), arm(System.TRANSFORMERS)]


TEXT = ((1, 2, 3), (4, 5))


def run(wall_s: float, tokens=TEXT, **counts: int) -> Run:
    return Run((wall_s, 2 * wall_s), tokens, SpeculationStatistics(**counts))


def test_every_other_token_is_counted_and_faster_whispers_are_not():
    runs = {
        PAIR: [run(1.0), run(1.0, ((1, 2), (4, 6)))],  # one is missing, one is another
        PEER: [run(1.0, ((9,), ()))],
    }
    assert count_differences(runs, TEXT) == {PAIR: 2}


def test_ratios_pair_recordings_of_a_round():
    runs = {ALONE: [run(2.0), run(4.0)], PAIR: [run(1.0), run(2.0)]}
    found = ratio(runs, PAIR, ALONE)
    assert found is not None and (found.value, found.num_rounds) == (0.5, 4)
    assert ratio(runs, PAIR, PEER_INT8) is None
