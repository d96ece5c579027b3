"""What is made of figures of experiments.fleet."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from experiments.fleet import hung, mixtures, spread
from experiments.fleet.__main__ import Part, all_measures
from experiments.fleet.hung import Hung
from experiments.fleet.mixtures import MIXTURES, Together
from experiments.fleet.spread import Spread

HUNG = Hung(12, 8, 0, 2.2, ())
SPREAD = Spread(48, 1, 0, 4, ())
TOGETHER = Together(19, 6, ())
WRONG = ("text of no target",)


def test_good_figures_hold_every_bar():
    found = [*hung.bars(HUNG), *spread.bars(SPREAD), *mixtures.bars(TOGETHER)]
    assert all(bar.holds for bar in found)


@pytest.mark.parametrize(
    "bars",
    [
        hung.bars(replace(HUNG, wrong=WRONG)),
        hung.bars(replace(HUNG, num_silent=1)),
        hung.bars(replace(HUNG, longest_opening_s=inf)),
        spread.bars(replace(SPREAD, wrong=WRONG)),
        spread.bars(replace(SPREAD, most_apart=2)),
        spread.bars(replace(SPREAD, num_idle=1)),
        mixtures.bars(replace(TOGETHER, wrong=WRONG)),
    ],
)
def test_each_promise_that_is_broken_breaks_one_bar(bars):
    assert sum(not bar.holds for bar in bars) == 1


@pytest.mark.parametrize("quick", [False, True])
def test_every_part_is_measured(quick, tmp_path):
    assert set(all_measures(tmp_path, 0, quick=quick)) == set(Part)


def test_each_mixture_has_a_program_of_the_previous_release():
    assert len(set(MIXTURES)) == len(MIXTURES) == 7
    assert all(mixtures.Version.OLD in mixture for mixture in MIXTURES)
