"""A gateway before a scripted draft server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.rpc.gateways import RunningGateway, gateway_for


@pytest.fixture
async def gateway() -> AsyncIterator[RunningGateway]:
    async with gateway_for() as running:
        yield running
