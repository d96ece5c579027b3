"""A locator that lists draft servers without Ray; clients reach it as ``locator:///HOST:PORT``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio

from specwhisper.wire.v1 import discovery_pb2 as pb
from specwhisper.wire.v1.discovery_pb2_grpc import DiscoveryServicer, add_DiscoveryServicer_to_server


class Listing(DiscoveryServicer):
    """Returns its addresses, which may change.

    Parameters
    ----------
    addresses : the initial addresses.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = list(addresses)

    async def ListServers(self, request: pb.ListServersRequest, context: Any) -> pb.ListServersResponse:
        return pb.ListServersResponse(addresses=self.addresses)


@asynccontextmanager
async def listing_locator(listing: Listing) -> AsyncIterator[str]:
    """Serve a listing; yield its ``locator:`` address."""
    server = grpc.aio.server()
    add_DiscoveryServicer_to_server(listing, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"locator:///127.0.0.1:{port}"
    finally:
        await server.stop(None)
