"""A Serve replica that runs a gRPC server of its own.

The server has our encryption, tokens and limits. Sessions connect to it directly. Through Serve's proxy each
message would cost an actor call, and all sessions would end with the proxy.
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
from specwhisper.rpc.serving import AddServicer, OnDrain, RunningServer, start_server
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper_deploy.health import NotServing, check_grpc

logger = logging.getLogger(__name__)

ANY_HOST = ("0.0.0.0", "::")
RETRY_S = 0.2
PORT_MARGIN_S = 10.0  # after the drain of the replica that still has the port

Options = TypeVar("Options")
Server = TypeVar("Server")


class GrpcReplica:
    """A replica with a gRPC server.

    It listens, reports its health, and drains when Serve ends it.

    Attributes
    ----------
    address : where other nodes reach it.
    metrics : where they reach its metrics; empty where it serves none.
    """

    def __init__(self) -> None:
        self._running = AsyncExitStack()  # resources of the server, closed after it has stopped
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
        """Start the server on the first ports that are free.

        Parameters
        ----------
        choices : the same options, with one choice of ports each.
        """
        self._on_drain, self._drain_timeout_s = on_drain, choices[0].drain_timeout_s
        folder = self._running.enter_context(TemporaryDirectory(prefix="specwhisper-"))  # mode 0700
        self._local_socket = Path(folder) / "socket"

        async def start(options: ServingOptions) -> RunningServer:
            return await start_server(services, replace(options, local_socket=self._local_socket), metrics)

        self._server = await retry_while_ports_are_taken(
            partial(start_on_free_ports, start, choices), self._drain_timeout_s
        )
        self.address = advertised_address(self._server.address)
        if self._server.metrics_address is not None:
            self.metrics = advertised_address(self._server.metrics_address)
        logger.info("ready", extra={"address": self.address, "metrics": self.metrics})

    async def client_address(self) -> str:
        """Return the address that clients connect to."""
        return self.address

    async def metrics_address(self) -> str:
        """Return the address of its metrics; empty where it serves none."""
        return self.metrics

    async def check_health(self) -> None:
        """Raise :class:`NotServing` unless the server answers in time that it serves.

        Serve replaces a replica that fails. The check runs in the event loop that answers calls: where the
        loop hangs, the check does too.
        """
        if self._server is None:
            raise NotServing("The server does not listen yet.")
        await check_grpc(self._server.address, self._local_socket)

    async def __del__(self) -> None:
        """Drain and stop; Serve awaits it."""
        if self._server is not None:
            await self._server.stop(self._drain_timeout_s, self._on_drain)
        await self._running.aclose()


async def start_on_free_ports(
    start: Callable[[Options], Awaitable[Server]], choices: Sequence[Options]
) -> Server:
    """Start a server with the first choice of ports that are free.

    Raises
    ------
    PortTaken
        where the ports of all choices are taken.
    """
    *others, last = choices
    for choice in others:
        with suppress(PortTaken):
            return await start(choice)
    return await start(last)


async def retry_while_ports_are_taken(
    start: Callable[[], Awaitable[Server]], drain_timeout_s: float
) -> Server:
    """Start a server, and retry while another replica drains on its ports.

    Other errors, for example of a certificate that cannot be read, are raised at once.
    """
    clock = asyncio.get_running_loop().time
    until_s = clock() + drain_timeout_s + PORT_MARGIN_S
    is_logged = False
    while True:
        try:
            return await start()
        except PortTaken as error:
            if clock() > until_s:
                raise
            if not is_logged:
                logger.info("waits for its port", extra={"error": str(error)})
            is_logged = True
            await asyncio.sleep(RETRY_S)


def advertised_address(address: str) -> str:
    """Return the address at which other nodes reach a server.

    For a server that listens on all interfaces, it is the node's own.
    """
    host, port = split_address(address)
    return join_address(ray.util.get_node_ip_address(), port) if host in ANY_HOST else address
