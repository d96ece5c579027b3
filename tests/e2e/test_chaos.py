"""A few runs of experiments.chaos: servers are killed, stopped and replaced; and a control that trips."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import replace

import pytest

from experiments.chaos.controls import KILLED
from experiments.chaos.runs import Outcome, run
from experiments.chaos.scenarios import Kind, Scenario, draw
from experiments.chaos.world import SPARE, World
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


async def test_a_server_that_nobody_has_seen_end_yet_takes_no_signal(tmp_path):
    async with World(KILLED, tmp_path) as world:
        world.target.signal(signal.SIGKILL)
        with suppress(ProcessLookupError):  # the event loop does not run meanwhile
            while True:
                os.kill(world.target.pid, 0)
        world.target.signal(signal.SIGTERM)
        await world.target.ended()
    assert world.target.exit_status == -signal.SIGKILL


async def test_a_spare_of_other_weights_is_noticed(tmp_path):
    outcome = await run_short(KILLED, tmp_path, spare=replace(SPARE, seed=1))
    assert Wrong.DIFFERENT in {wrong.kind for one in outcome.heard for wrong in one.violations}
