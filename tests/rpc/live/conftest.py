"""Servers for live audio, in place of those for recordings."""

from collections.abc import AsyncIterator

import pytest

from tests.rpc.services import Draft, Target, all_free
from tests.rpc.speaking import speaking_draft, speaking_target


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    """Run a target that recognises synthetic words; at the end no session is left on it."""
    async with speaking_target() as running:
        yield running
        await all_free(running)


@pytest.fixture
async def draft(target, energy_vad) -> AsyncIterator[Draft]:
    """Run a draft server for the target; at the end no session is left on either."""
    async with speaking_draft(target.address) as running:
        yield running
        await all_free(target, running)
