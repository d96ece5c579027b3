"""Riva's client of a scripted pair, which has no session left at the end."""

from collections.abc import AsyncIterator

import pytest

from tests.rpc.riva_clients import Riva, riva_client
from tests.rpc.services import all_free, running_pair


@pytest.fixture
async def client() -> AsyncIterator[Riva]:
    async with running_pair() as (target, draft), riva_client(draft) as client:
        yield client
        await all_free(target, draft)
