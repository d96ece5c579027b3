"""Short runs of experiments.chaos, one of them a negative control."""

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
from experiments.common.oracle import ViolationKind
from tests.nightly import mostly_nightly

pytestmark = pytest.mark.timeout(600)


async def run_short(scenario: Scenario, tmp_path, **kwargs) -> Outcome:
    """Run a scenario with one live client and one recording."""
    clients = (scenario.clients[0], scenario.clients[-1])
    return await run(replace(scenario, clients=clients), tmp_path, **kwargs)


@pytest.mark.parametrize(
    ("kind", "point"),
    mostly_nightly(
        [
            (Kind.KILL_AT, "verify.after"),
            (Kind.KILL_DRAFT, ""),
            (Kind.KILL_AT, "send.before"),
            (Kind.DRAIN_AGAIN, ""),
        ],
    ),
)
async def test_faults_do_not_change_the_text(kind, point, tmp_path):
    scenario = replace(draw(1, kind, point), hit=8) if point else draw(1, kind)
    outcome = await run_short(scenario, tmp_path)
    assert outcome.all_violations == []
    assert outcome.has_fault_begun


@pytest.mark.nightly
async def test_clients_of_a_drained_draft_server_resume_at_another(tmp_path):
    outcome = await run_short(draw(1, Kind.DRAIN_DRAFT), tmp_path)
    assert outcome.all_violations == []
    assert len(outcome.pauses_s) == 2, "each client resumed in another call"


@pytest.mark.nightly
async def test_a_signal_to_a_server_that_has_just_ended_is_ignored(tmp_path):
    async with World(KILLED, tmp_path) as world:
        world.target.signal(signal.SIGKILL)
        with suppress(ProcessLookupError):  # without running the event loop
            while True:
                os.kill(world.target.pid, 0)
        world.target.signal(signal.SIGTERM)
        await world.target.ended()
    assert world.target.exit_status == -signal.SIGKILL


async def test_a_spare_with_other_weights_is_detected(tmp_path):
    outcome = await run_short(KILLED, tmp_path, spare=replace(SPARE, seed=1))
    assert ViolationKind.LOST in {wrong.kind for one in outcome.clients for wrong in one.violations}
