"""The smallest measurements of experiments.promises run on real processes."""

from __future__ import annotations

import pytest

from experiments.promises import resets, stops

pytestmark = pytest.mark.timeout(300)


@pytest.mark.nightly
async def test_stopping_servers_are_measured_until_health_reports_it(tmp_path):
    """The time itself is measured on a quiet machine."""
    stopped = await stops.measure_stops(1, tmp_path)
    assert [one.server for one in stopped] == ["target", "draft server"]
    for one in stopped:
        assert (one.exit_status, one.num_orphans, one.wrong) == (0, 0, ())
        assert one.num_sessions > 0


@pytest.mark.nightly
async def test_reset_connections_leave_no_slot_taken(tmp_path):
    survived = await resets.measure_resets(32, tmp_path)
    assert survived.wrong == ()
    assert survived.free_s < 30.0, "slots stay taken"
