"""A fleet on paper: servers to buy, and waits when one is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.provisioning.capacity import EXPECTED, Live, capacity, num_targets
from experiments.provisioning.fleet import Fleet, grow, lose_one, many
from specwhisper_deploy.scaling import BySessions


def test_sessions_are_limited_by_what_runs_out_first():
    found = capacity(EXPECTED, Live(), utilisation=0.7)
    assert found.sessions == found.by_gpu < found.by_python
    # 1.6 steps a second of 5 ms of encoding and four passes' shares.
    assert found.by_gpu == pytest.approx(700 / (1.6 * (5 + 4 * (0.85 / 32 + 9 * 0.014))), abs=1)
    slow = capacity(replace(EXPECTED, engine_us=5_000), Live(), utilisation=0.7)
    assert slow.sessions == slow.by_python < found.sessions
    assert capacity(EXPECTED, Live(steps_per_s=1), utilisation=0.7).by_gpu == pytest.approx(
        2 * found.by_gpu, abs=2
    )


def test_one_target_more_than_needed_is_planned():
    assert [num_targets(n, 50) for n in (1, 50, 51, 1_000)] == [2, 2, 3, 21]


def lost(num_targets, load, num_standby=0):
    fleet = Fleet(num_targets, 50, num_standby)
    return many(lambda seed: lose_one(fleet, round(load * fleet.num_slots), seed=seed), 5)


def test_every_session_of_the_lost_target_continues_or_ends():
    for num, load in ((1, 1.0), (4, 0.9), (16, 1.0)):
        found = lost(num, load)
        # Some sessions end in the seconds before, and others begin.
        assert len(found.waits_s) + found.num_ended == pytest.approx(5 * 50 * load, rel=0.15)


def test_where_others_have_room_no_session_waits_for_a_slot():
    found = lost(4, 0.6)
    assert found.num_ended == 0 and max(found.waits_s) < 1


def test_the_only_targets_sessions_end_before_another_one_has_loaded():
    assert not lost(1, 1.0).waits_s
    standby = lost(1, 1.0, num_standby=1)
    assert standby.num_ended == 0 and max(standby.waits_s) < 1


def test_full_targets_let_sessions_wait_and_a_standby_does_not():
    alone, standby = lost(4, 1.0), lost(4, 1.0, num_standby=1)
    assert alone.num_ended > 0 and max(alone.waits_s) > 20
    assert standby.num_ended == 0 and max(standby.waits_s) < 1


def test_while_a_model_loads_new_sessions_are_refused():
    def refused(num_standby):
        policy = BySessions(45, num_standby=num_standby)
        fleet = Fleet(1 + num_standby, 50)
        return many(lambda seed: grow(fleet, 45, factor=3, policy=policy, seed=seed), 5)

    without, with_one = refused(0), refused(1)
    assert without.num_refused > 5 * with_one.num_refused
    assert without.num_begun == with_one.num_begun
