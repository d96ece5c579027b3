"""What tests of the wire share."""

from __future__ import annotations

import pytest


@pytest.fixture
def first_named(monkeypatch) -> None:
    """Have clients take the server that is named first, of those that are equally good."""
    monkeypatch.setattr("client.servers.random", lambda: 0.0)
