"""Fixtures of the draft server's tests."""

import pytest

from specwhisper.rpc import failover


@pytest.fixture
def short_delays(monkeypatch) -> None:
    """Try again after a lost target without a noticeable delay."""
    monkeypatch.setattr(failover, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(failover, "MAX_DELAY_S", 0.001)
