"""The bars of the real pair's comparison, from runs that are given."""

from experiments.peers.arms import Run
from experiments.real.__main__ import (
    ALONE,
    PAIR,
    PEER,
    PEER_INT8,
    count_differences,
    ratio,
)
from specwhisper.speculation.statistics import SpeculationStatistics

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
