"""A few runs of experiments.chaos: servers are killed, stopped and replaced; and a control that trips."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.chaos.controls import KILLED
from experiments.chaos.runs import Outcome, run
from experiments.chaos.scenarios import Kind, Scenario, draw
from experiments.chaos.world import SPARE
from experiments.common.oracle import Wrong

pytestmark = pytest.mark.timeout(600)


async def run_short(scenario: Scenario, tmp_path, **kwargs) -> Outcome:
    """With one client who speaks and one who has a recording."""
    clients = (scenario.clients[0], scenario.clients[-1])
    return await run(replace(scenario, clients=clients), tmp_path, **kwargs)


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        (Kind.KILL_AT, "verify.after"),
        (Kind.KILL_AT, "send.before"),
        (Kind.DRAIN_AGAIN, ""),
        (Kind.KILL_DRAFT, ""),
    ],
)
async def test_whatever_happens_the_text_is_the_same(kind, point, tmp_path):
    scenario = replace(draw(1, kind, point), hit=8) if point else draw(1, kind)
    outcome = await run_short(scenario, tmp_path)
    assert outcome.all_violations == []
    assert outcome.has_struck


async def test_clients_go_on_at_another_draft_server_where_theirs_stops(tmp_path):
    outcome = await run_short(draw(1, Kind.DRAIN_DRAFT), tmp_path)
    assert outcome.all_violations == []
    assert len(outcome.pauses_s) == 2, "each was cut off, and went on in another call"


async def test_a_spare_of_other_weights_is_noticed(tmp_path):
    outcome = await run_short(KILLED, tmp_path, spare=replace(SPARE, seed=1))
    assert Wrong.DIFFERENT in {wrong.kind for one in outcome.heard for wrong in one.violations}
