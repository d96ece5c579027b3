"""Announce the server by mDNS, as Home Assistant looks for it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import zeroconf
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from specwhisper.errors import InvalidRequest

SERVICE = "_wyoming._tcp.local."
MDNS = ("224.0.0.251", 5353)
WILDCARDS = ("0.0.0.0", "::")


@asynccontextmanager
async def announced(name: str, host: str, port: int) -> AsyncIterator[None]:
    """Announce a service while the body runs; a taken name gets a number.

    Parameters
    ----------
    host : the address that the server listens on.

    Raises
    ------
    InvalidRequest : for a name that mDNS does not allow, and where there is no network.
    """
    try:
        address = _outgoing_address() if host in WILDCARDS else host
        announcing = AsyncZeroconf()
        try:
            service = AsyncServiceInfo(SERVICE, f"{name}.{SERVICE}", port, parsed_addresses=[address])
            await announcing.async_register_service(service, allow_name_change=True)
        except BaseException:
            await announcing.async_close()
            raise
    except (OSError, zeroconf.Error) as error:
        raise InvalidRequest(
            f"--zeroconf cannot announce '{name}': {error or type(error).__name__}."
        ) from error
    try:
        yield
    finally:
        await announcing.async_close()


def _outgoing_address() -> str:
    """Return this machine's address on the network of mDNS; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect(MDNS)
        return str(asking.getsockname()[0])
