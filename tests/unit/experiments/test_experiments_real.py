"""The bars of the real pair's comparison, from runs that are given."""

from __future__ import annotations

from experiments.peers.arms import Run
from experiments.real.__main__ import (
    ALONE,
    FULL,
    PAIR,
    PAIR_INT8,
    PEER,
    PEER_INT8,
    TIMED,
    count_differences,
    find_bars,
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


def test_bars_hold_or_are_short_one_line_each():
    runs = {arm: [run(1.0), run(1.0)] for arm in TIMED}
    runs[PAIR] = [run(0.7, num_verified=10, num_accepted=9), run(0.7)]
    runs[FULL] = [run(0.6, num_verified=10, num_accepted=7, num_committed=60, num_forwards=10)]
    lines = [str(bar) for bar in find_bars(runs, 0.95, 0, {PAIR_INT8: 3})]
    assert len(lines) == len(set(lines)) == 9
    assert [line.rpartition(" ")[2] for line in lines] == [
        *("holds", "short", "holds", "holds", "short", "holds"),  # texts, agreement, accepted, tokens a pass
        *("short", "holds", "short"),  # times over faster-whisper's
    ]
    without_peer = {arm: of_arm for arm, of_arm in runs.items() if arm != PEER}
    assert len(find_bars(without_peer, 0.95, 0, {})) == 5
