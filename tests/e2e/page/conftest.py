"""A page in front of a scripted draft server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from tests.e2e.page.pages import Opened, browser, opened
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import running_gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Any]:
    async with browser() as chromium:
        yield chromium


@pytest_asyncio.fixture(loop_scope="module")
async def page(chromium) -> AsyncIterator[Opened]:
    async with (
        serving(ScriptedTranscription()) as address,
        running_gateway(address) as gateway,
        opened(chromium, gateway.url) as page,
    ):
        yield page
