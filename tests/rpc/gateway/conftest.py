"""A gateway before a scripted draft server."""

from collections.abc import AsyncIterator

import pytest

from tests.rpc.gateways import RunningGateway, gateway_for


@pytest.fixture
async def gateway() -> AsyncIterator[RunningGateway]:
    async with gateway_for() as running:
        yield running
