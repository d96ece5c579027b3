"""What tests of the wire share."""

from __future__ import annotations

import pytest

from specwhisper.rpc import health


@pytest.fixture
def first_named(monkeypatch) -> None:
    """Have clients take the server that is named first, of those that are equally good."""
    monkeypatch.setattr("specwhisper_client.servers.random", lambda: 0.0)


@pytest.fixture
def impatient(monkeypatch) -> None:
    """Have servers check their engines often, and not wait long for them."""
    monkeypatch.setattr(health, "CHECK_EVERY_S", 0.02)
    monkeypatch.setattr(health, "CHECK_WITHIN_S", 0.2)
