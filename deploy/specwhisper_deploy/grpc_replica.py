"""A Serve replica that runs its own gRPC server.

The server has our encryption, tokens and limits, and sessions connect to it directly. Through Serve's proxy,
each message would cost an actor call, and all sessions would end with the proxy.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import grpc.aio
import ray.util
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specwhisper.errors import PortTaken
from specwhisper.observe.metrics import ServerMetrics
from specwhisper.rpc.addresses import join_address, split_address
from specwhisper.rpc.serving import AddServicer, OnDrain, RunningServer, start_server
from specwhisper.rpc.serving_options import ListenerOptions, ServingOptions
from specwhisper.rpc.tls import ServerTls

logger = logging.getLogger(__name__)

ANY_HOST = ("0.0.0.0", "::")
RETRY_S = 0.2
PORT_MARGIN_S = 10.0  # after the drain of the replica that holds the port
ANSWER_TIMEOUT_S = 5.0
SERVING = health_pb2.HealthCheckResponse.SERVING
# Needs no token, and reports on the gateway only, not on its draft servers.
REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

Options = TypeVar("Options", bound=ListenerOptions)
Server = TypeVar("Server")


class NotServing(Exception):
    """A server doesn't answer, or isn't serving."""


class GrpcReplica:
    """A replica with a gRPC server; it drains when Serve ends it.

    ``address``, ``metrics``: where other nodes reach it and its metrics; empty if it serves none.
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
        """Start the server with the first choice of ports that are free."""
        self._on_drain, self._drain_timeout_s = on_drain, choices[0].drain_timeout_s
        folder = self._running.enter_context(TemporaryDirectory(prefix="specwhisper-"))  # mode 0700
        self._local_socket = Path(folder) / "socket"

        async def start(options: ServingOptions) -> RunningServer:
            return await start_server(services, replace(options, local_socket=self._local_socket), metrics)

        self._server = await started(start, choices)
        self.address = advertised_address(self._server.address)
        if self._server.metrics_address is not None:
            self.metrics = advertised_address(self._server.metrics_address)
        logger.info("ready", extra={"address": self.address, "metrics": self.metrics})

    async def client_address(self) -> str:
        return self.address

    async def metrics_address(self) -> str:
        return self.metrics

    async def check_health(self) -> None:
        """Raise :class:`NotServing` unless the server answers in time; Serve replaces a replica that fails.

        The check runs in the event loop that answers calls: if the loop hangs, the check does too.
        """
        if self._server is None:
            raise NotServing("The server does not listen yet.")
        await check_grpc(self._server.address, self._local_socket)

    async def __del__(self) -> None:
        """Drain and stop; Serve awaits it."""
        if self._server is not None:
            await self._server.stop(self._drain_timeout_s, self._on_drain)
        await self._running.aclose()


async def started(start: Callable[[Options], Awaitable[Server]], choices: Sequence[Options]) -> Server:
    """Start a server with the first choice of ports that are free; wait while other replicas drain on all."""
    clock = asyncio.get_running_loop().time
    until_s = clock() + choices[0].drain_timeout_s + PORT_MARGIN_S
    is_logged = False
    while True:
        for choice in choices:
            try:
                return await start(choice)
            except PortTaken as taken:
                error = taken
        if clock() > until_s:
            raise error
        if not is_logged:
            logger.info("waits for its port", extra={"error": str(error)})
        is_logged = True
        await asyncio.sleep(RETRY_S)


def advertised_address(address: str) -> str:
    """Return the address at which other nodes reach a server that may listen on all interfaces."""
    host, port = split_address(address)
    return join_address(ray.util.get_node_ip_address(), port) if host in ANY_HOST else address


async def check_grpc(address: str, local_socket: Path, within_s: float = ANSWER_TIMEOUT_S) -> None:
    """Raise :class:`NotServing` unless a gRPC server takes connections and answers that it serves.

    The check uses the server's local socket: its certificate may not name this host, and it may require
    client certificates.
    """
    async with _timeout(address, within_s):
        _, writer = await asyncio.open_connection(*split_address(address))
        writer.close()
        await writer.wait_closed()
        async with grpc.aio.insecure_channel(f"unix:{local_socket}") as channel:
            reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    if reply.status != SERVING:
        raise NotServing(f"The server at {address} does not serve.")


async def check_http(address: str, tls: ServerTls | None, within_s: float = ANSWER_TIMEOUT_S) -> None:
    """Raise :class:`NotServing` unless a gateway answers, with any HTTP status."""
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the server is this process: nothing to verify
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3  # the handshake ends with the server's message
    async with _timeout(address, within_s):
        reader, writer = await asyncio.open_connection(*split_address(address), ssl=context)
        try:
            if tls is None or tls.client_roots is None:  # else it answers only callers with a certificate
                writer.write(REQUEST)
                if not (await reader.readline()).startswith(b"HTTP/1.1 "):
                    raise NotServing(f"The server at {address} does not speak HTTP.")
        finally:
            writer.transport.abort()


@asynccontextmanager
async def _timeout(address: str, within_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError as error:
        raise NotServing(f"The server at {address} has not answered within {within_s:g} s.") from error
    except OSError as error:
        raise NotServing(f"The server at {address} does not answer: {error}") from error
    except grpc.aio.AioRpcError as error:
        raise NotServing(f"The server at {address} does not answer: {error.details()}") from error
