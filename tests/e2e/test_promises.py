"""The smallest measurements of experiments.promises, on real processes: that they can be taken at all."""

from __future__ import annotations

import pytest

from experiments.promises import resets, stops

pytestmark = pytest.mark.timeout(300)


@pytest.mark.nightly
async def test_servers_that_stop_are_watched_until_they_say_so(tmp_path):
    """How soon they do is for a quiet machine to say."""
    stopped = await stops.measure_stops(1, tmp_path)
    assert [one.server for one in stopped] == ["target", "draft server"]
    for one in stopped:
        assert (one.exit_status, one.num_orphans, one.wrong) == (0, 0, ())
        assert one.num_sessions > 0


async def test_connections_that_are_reset_harm_nobody(tmp_path):
    survived = await resets.measure_resets(32, tmp_path)
    assert survived.wrong == ()
    assert survived.free_s < 30.0, "slots stay taken"
