"""Home Assistant finds a server that announces itself."""

import asyncio

import pytest
from zeroconf import ServiceStateChange
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from specwhisper.errors import InvalidRequest
from specwhisper_wyoming.server import SERVICE, announced
from tests.rpc.wyomings import WITHIN_S, wyoming_server

NAME = "specwhisper test"
pytestmark = pytest.mark.nightly  # it announces on the machine's network


@pytest.fixture
async def listener():
    try:
        listener = AsyncZeroconf()
    except OSError as error:
        pytest.skip(f"no multicast here: {error}")
    yield listener
    await listener.async_close()


async def test_a_server_is_found_with_its_port_until_it_stops(listener, unused_tcp_port):
    seen: asyncio.Queue[ServiceStateChange] = asyncio.Queue()

    def changed(zeroconf, service_type, name, state_change) -> None:
        if name == f"{NAME}.{SERVICE}" and state_change is not ServiceStateChange.Updated:
            seen.put_nowait(state_change)

    browser = AsyncServiceBrowser(listener.zeroconf, SERVICE, handlers=[changed])
    uri = f"tcp://0.0.0.0:{unused_tcp_port}"
    async with asyncio.timeout(WITHIN_S):
        async with wyoming_server("127.0.0.1:9", uri=uri, insecure=True, zeroconf=NAME):
            assert await seen.get() is ServiceStateChange.Added
            found = AsyncServiceInfo(SERVICE, f"{NAME}.{SERVICE}")
            assert await found.async_request(listener.zeroconf, WITHIN_S * 1_000)
            assert found.port == unused_tcp_port
            assert found.parsed_addresses()
        assert await seen.get() is ServiceStateChange.Removed
    await browser.async_cancel()


async def test_a_name_that_is_too_long_is_refused(listener):
    with pytest.raises(InvalidRequest, match="--zeroconf"):
        async with announced("x" * 80, "0.0.0.0", 10_300):
            pass
