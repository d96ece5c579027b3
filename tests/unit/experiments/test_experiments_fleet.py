"""The bars of experiments.fleet, from figures."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from experiments.fleet import herd, hung, mixed, opening, spread
from experiments.fleet.__main__ import Part, all_measures
from experiments.fleet.crowd import Outcome
from experiments.fleet.herd import Herded
from experiments.fleet.hung import Hung
from experiments.fleet.mixed import Mixed
from experiments.fleet.opening import Opened
from experiments.fleet.servers import Weights
from experiments.fleet.spread import Spread

HUNG = Hung("in a step", 12, 8, 0, 2.2, 0.2, 5.0, ())
SPREAD = Spread(48, 1, 0, 4, 0, ())
OPENED = Opened(4, 60, 0, ())
HERDED = Herded(14, 3, ())
MIXED = Mixed(20, 3, 3, {"old": 9, "new": 11}, ())
WRONG = ("text of no target",)


def test_good_figures_pass_every_bar():
    found = [*hung.bars(HUNG), *spread.bars(SPREAD)]
    found += [*opening.bars(OPENED), *herd.bars(HERDED), *mixed.bars(MIXED)]
    assert all(bar.holds for bar in found)


@pytest.mark.parametrize(
    "bars",
    [
        hung.bars(replace(HUNG, wrong=WRONG)),
        hung.bars(replace(HUNG, num_silent=1)),
        hung.bars(replace(HUNG, num_due=0)),
        hung.bars(replace(HUNG, longest_opening_s=inf)),
        hung.bars(replace(HUNG, longest_known_opening_s=2.0)),
        hung.bars(replace(HUNG, longest_said_s=inf)),
        spread.bars(replace(SPREAD, wrong=WRONG)),
        spread.bars(replace(SPREAD, most_apart=2)),
        spread.bars(replace(SPREAD, num_idle=1)),
        spread.bars(replace(SPREAD, num_unfilled=1)),
        opening.bars(replace(OPENED, wrong=WRONG)),
        opening.bars(replace(OPENED, num_calm=1)),
        herd.bars(replace(HERDED, refused=WRONG)),
        mixed.bars(replace(MIXED, wrong=WRONG)),
        mixed.bars(replace(MIXED, num_kept_weights=2)),
        mixed.bars(replace(MIXED, weights={"old": 20})),
    ],
)
def test_each_broken_promise_fails_one_bar(bars):
    assert sum(not bar.holds for bar in bars) == 1


def test_only_sessions_without_a_slot_may_fail():
    whole, other = Outcome(Weights.OLD, "", 0.0, 1.0), Outcome(None, "", 0.0, 1.0)
    full = Outcome(None, "ServerFull: all slots are taken", 0.0, 1.0)
    lost = Outcome(None, "TargetUnavailable: lost", 0.0, 1.0)
    assert herd.refusals([whole, full, other, lost, full]) == ([str(full)] * 2, [str(other), str(lost)])


@pytest.mark.parametrize("quick", [False, True])
def test_every_part_is_measured(quick, tmp_path):
    assert set(all_measures(tmp_path, 0, quick=quick)) == set(Part)
