"""A Serve replica that runs a server of its own, with our encryption, door and limits.

Sessions go straight to it. Through Serve's proxy each message would cost an actor call, and all sessions
would die with the proxy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import ray.util

from specwhisper.errors import PortTaken
from specwhisper.observe.metrics.server import ServerMetrics
from specwhisper.rpc.addresses import join_address, split_address
from specwhisper.rpc.serving import AddServicer, OnDrain, RunningServer, ServingOptions, start_server
from specwhisper_deploy.health import NotServing, check_grpc

logger = logging.getLogger(__name__)

ANY_HOST = ("0.0.0.0", "::")
RETRY_S = 0.2
PORT_WAIT_S = 10.0  # behind the end of a predecessor's drain

Options = TypeVar("Options")
Server = TypeVar("Server")


class GrpcReplica:
    """A replica with a gRPC server: it listens, is healthy, and drains when Serve ends it.

    Attributes
    ----------
    address : where other machines reach it.
    metrics : where they reach its metrics; empty where there are none.
    """

    def __init__(self) -> None:
        self._running = AsyncExitStack()  # what the server needs, ended behind it
        self._server: RunningServer | None = None
        self._local_socket = Path()
        self._on_drain: OnDrain | None = None
        self._drain_timeout_s = 0.0
        self.address = self.metrics = ""

    async def _listen(
        self,
        services: Mapping[str, AddServicer],
        choices: Sequence[ServingOptions],
        on_drain: OnDrain | None = None,
        metrics: ServerMetrics | None = None,
    ) -> None:
        """Serve on the first ports that are free.

        Parameters
        ----------
        choices : the same options, with one choice of ports each.
        """
        self._on_drain, self._drain_timeout_s = on_drain, choices[0].drain_timeout_s
        folder = self._running.enter_context(TemporaryDirectory(prefix="specwhisper-"))  # nobody else's
        self._local_socket = Path(folder) / "socket"

        async def start(options: ServingOptions) -> RunningServer:
            return await start_server(services, replace(options, local_socket=self._local_socket), metrics)

        self._server = await once_ports_are_free(
            partial(on_free_ports, start, choices), self._drain_timeout_s
        )
        self.address = reachable(self._server.address)
        if self._server.metrics_address is not None:
            self.metrics = reachable(self._server.metrics_address)
        logger.info("ready", extra={"address": self.address, "metrics": self.metrics})

    async def where(self) -> str:
        """Tell where it is reached."""
        return self.address

    async def check_health(self) -> None:
        """Raise unless the server says in time that it serves; Serve replaces the replica then.

        It runs in the event loop that answers calls: where that hangs, so does this.
        """
        if self._server is None:
            raise NotServing("The server does not listen yet.")
        await check_grpc(self._server.address, self._local_socket)

    async def __del__(self) -> None:
        """Tell sessions to go elsewhere, wait for those that have not, and end; Serve awaits it."""
        if self._server is not None:
            await self._server.stop(self._drain_timeout_s, self._on_drain)
        await self._running.aclose()


async def on_free_ports(start: Callable[[Options], Awaitable[Server]], choices: Sequence[Options]) -> Server:
    """Start a server with the first choice of ports that are free; :class:`PortTaken` where none are."""
    *others, last = choices
    for choice in others:
        with suppress(PortTaken):
            return await start(choice)
    return await start(last)


async def once_ports_are_free(start: Callable[[], Awaitable[Server]], drain_timeout_s: float) -> Server:
    """Start a server whose ports a predecessor may still have, for as long as that drains.

    What else it lacks, as a certificate that can be read, is told at once.
    """
    clock = asyncio.get_running_loop().time
    until_s = clock() + drain_timeout_s + PORT_WAIT_S
    has_told = False
    while True:
        try:
            return await start()
        except PortTaken as error:
            if clock() > until_s:
                raise
            if not has_told:
                logger.info("waits for its port", extra={"error": str(error)})
            has_told = True
            await asyncio.sleep(RETRY_S)


def reachable(address: str) -> str:
    """Give the address under which other machines reach a server that listens everywhere."""
    host, port = split_address(address)
    return join_address(ray.util.get_node_ip_address(), port) if host in ANY_HOST else address
