"""Short runs of experiments.faults, one of them a negative control."""

from dataclasses import replace

import pytest

from experiments.faults.chaos import Outcome, Scenario, draw, run
from experiments.faults.kinds import DRAIN_AGAIN, DRAIN_DRAFT, KILL_AT, KILL_DRAFT, KILLED
from experiments.faults.oracle import ViolationKind
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
            (KILL_AT, "verify.after"),
            (KILL_DRAFT, ""),
            (KILL_AT, "send.before"),
            (DRAIN_AGAIN, ""),
            (DRAIN_DRAFT, ""),
        ]
    ),
)
async def test_faults_do_not_change_the_text(kind, point, tmp_path):
    outcome = await run_short(replace(draw(1, kind, point), hit=8), tmp_path)
    assert outcome.all_violations == []
    assert outcome.has_fault_begun
    assert outcome.pauses_s or kind is not DRAIN_DRAFT, "a client resumed in another call"


async def test_a_spare_with_other_weights_is_detected(tmp_path):
    outcome = await run_short(KILLED, tmp_path, spare_seed=1)
    assert ViolationKind.LOST in {wrong.kind for one in outcome.sessions for wrong in one.violations}
