"""Serve replicas, each of which runs one server that also runs without Ray."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import grpc.aio
import ray.util
from grpc_health.v1 import health_pb2, health_pb2_grpc
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from specwhisper.errors import PortTaken, TargetUnavailable
from specwhisper.observe.metrics import ServerMetrics
from specwhisper.rpc.addresses import join_address, split_address
from specwhisper.rpc.metrics_server import metrics_page, serving_page, targets_page
from specwhisper.rpc.serving import AddServicer, OnDrain, RunningServer, start_server
from specwhisper.rpc.serving_options import ListenerOptions, ServingOptions
from specwhisper.rpc.tls import ServerTls
from specwhisper.rpc.tokens import Leases
from specwhisper.wire.v1.discovery_pb2_grpc import add_DiscoveryServicer_to_server
from specwhisper.wire.v1.verification_pb2_grpc import add_VerificationServicer_to_server
from specwhisper_client.resolving import LOCATOR
from specwhisper_deploy import compat, locators
from specwhisper_deploy.locators import (
    DraftLocatorService,
    DraftServerRoom,
    HandleReply,
    TargetLocatorService,
    describe_reply,
    locate_reply,
)
from specwhisper_deploy.placement import Flags, configs_on_this_node
from specwhisper_deploy.routing import ADDRESS, HAS_ROOM, OPEN_SESSIONS, VOCABULARY, WEIGHTS
from specwhisper_draft_server.config import DraftConfig
from specwhisper_gateway.config import GatewayConfig
from specwhisper_target_server.config import TargetConfig

logger = logging.getLogger(__name__)

ANY_HOST = ("0.0.0.0", "::")
RETRY_S = 0.2
PORT_MARGIN_S = 10.0  # after the drain of the replica that holds the port
FREE_PORT: Flags = {"port": 0}
HEALTH_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 2.0  # within which all replicas report their addresses
SERVING = health_pb2.HealthCheckResponse.SERVING
# Needs no token, and reports on the gateway only, not on its draft servers.
REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

Options = TypeVar("Options", bound=ListenerOptions)
Server = TypeVar("Server")


class NotServing(Exception):
    """A server doesn't answer, or isn't serving."""


class GrpcReplica:
    """A replica with its own gRPC server; it drains when Serve ends it.

    The server has our encryption, tokens and limits, and sessions connect to it directly. Through Serve's
    proxy, each message would cost an actor call, and all sessions would end with the proxy.

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


async def check_grpc(address: str, local_socket: Path, within_s: float = HEALTH_TIMEOUT_S) -> None:
    """Raise :class:`NotServing` unless a gRPC server answers that it serves.

    The check uses the server's local socket: its certificate may not name this host, and it may require
    client certificates.
    """
    async with _timeout(address, within_s):
        async with grpc.aio.insecure_channel(f"unix:{local_socket}") as channel:
            reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    if reply.status != SERVING:
        raise NotServing(f"The server at {address} does not serve.")


async def check_http(address: str, tls: ServerTls | None, within_s: float = HEALTH_TIMEOUT_S) -> None:
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


class TargetReplica(GrpcReplica):
    async def __init__(self, flags: Flags) -> None:  # type: ignore[misc]  # Serve awaits it
        from specwhisper_target_server.server import loaded_service, services_of

        super().__init__()
        configs = configs_on_this_node(TargetConfig, FREE_PORT | flags)
        self._service = await self._running.enter_async_context(loaded_service(configs[0], Leases()))
        service = self._service
        await self._listen(services_of(service), configs, service.announce_drain, service.metrics)

    async def locate(self, request: bytes, caller: str) -> HandleReply:
        return await locate_reply(self._service, self.address, request, caller)

    async def describe(self, request: bytes) -> HandleReply:
        return await describe_reply(self._service, request)

    async def check_health(self) -> None:
        """Raise, or hang, unless engine and server answer."""
        await self._service.check_health()
        await super().check_health()

    def record_routing_stats(self) -> dict[str, Any]:
        return {
            OPEN_SESSIONS: self._service.num_sessions,
            HAS_ROOM: self._service.has_room,
            ADDRESS: self.address,
            WEIGHTS: self._service.weights_digest,
            VOCABULARY: self._service.vocabulary_digest,
        }

    def record_autoscaling_stats(self) -> dict[str, float]:
        return {"open_sessions": float(self._service.num_sessions), "answer_ms": self._service.answer_ms}


def metrics_addresses(
    replicas: DeploymentHandle, timeout_s: float = ANSWER_TIMEOUT_S
) -> Callable[[], list[str]]:
    """Return a thread-safe function that lists the replicas' metrics addresses.

    It leaves out replicas that have died. If one hangs it raises an error, so that Prometheus keeps its last
    list.
    """
    loop = asyncio.get_running_loop()

    async def ask() -> list[str]:
        try:
            results = await compat.call_all_replicas(replicas, "metrics_address", timeout_s)
            if any(isinstance(result, asyncio.CancelledError) for result in results):
                raise TimeoutError
        except (TimeoutError, RayError, RayServeException) as error:
            raise TargetUnavailable(
                f"Not all replicas have reported within {timeout_s:g} s where their metrics are; try again."
            ) from error
        return sorted(result for result in results if isinstance(result, str) and result)

    return lambda: asyncio.run_coroutine_threadsafe(ask(), loop).result()


class _LocatorReplica(GrpcReplica):
    """One address for many replicas, and an HTTP page that lists their metrics."""

    async def _serve_locator(
        self, name: str, add: AddServicer, serving: ServingOptions, replicas: DeploymentHandle
    ) -> None:
        metrics = ServerMetrics("specwhisper_locator", model="", dtype="", device="")
        await self._listen({name: add}, [replace(serving, metrics_port=None)], metrics=metrics)
        if (port := serving.metrics_port) is not None:  # the locator's own metrics, and the list
            pages = targets_page(metrics_addresses(replicas), metrics_page(metrics.collected))
            page = partial(serving_page, pages, serving.metrics_host, port)

            async def start(_: ServingOptions) -> str:
                return await self._running.enter_async_context(page(serving.tls, serving.tokens))

            self.metrics = advertised_address(await started(start, [serving]))
            logger.info("target list ready", extra={"address": self.metrics})


class TargetLocatorReplica(_LocatorReplica):
    """The address that draft servers are configured with; it finds targets."""

    async def __init__(self, flags: Flags, targets: DeploymentHandle) -> None:  # type: ignore[misc]  # as above
        super().__init__()
        (config,) = configs_on_this_node(TargetConfig, flags)
        add = partial(add_VerificationServicer_to_server, TargetLocatorService(targets))
        await self._serve_locator(locators.TARGETS_SERVICE, add, config, targets)


class DraftLocatorReplica(_LocatorReplica):
    """The address that gateways are configured with; it lists draft servers."""

    async def __init__(self, flags: Flags, drafts: DeploymentHandle) -> None:  # type: ignore[misc]  # as above
        super().__init__()
        (config,) = configs_on_this_node(DraftConfig, flags)
        add = partial(add_DiscoveryServicer_to_server, DraftLocatorService(drafts))
        await self._serve_locator(locators.DRAFTS_SERVICE, add, config, drafts)

    async def client_address(self) -> str:
        """Return the address as clients' ``--server`` takes it."""
        return f"{LOCATOR}{self.address}"


class DraftReplica(GrpcReplica):
    async def __init__(self, flags: Flags) -> None:  # type: ignore[misc]  # Serve awaits it
        from specwhisper_draft_server.server import loaded_service, services_of

        super().__init__()
        configs = configs_on_this_node(DraftConfig, flags)
        self._service = await self._running.enter_async_context(loaded_service(configs[0]))
        services = services_of(self._service, configs[0])
        await self._listen(services, configs, metrics=self._service.metrics)

    async def room(self) -> DraftServerRoom:
        return DraftServerRoom(self.address, self._service.num_free_sessions)

    async def check_health(self) -> None:
        await self._service.check_health()
        await super().check_health()

    def record_autoscaling_stats(self) -> dict[str, float]:
        return {"open_sessions": float(self._service.num_sessions)}


class GatewayReplica:
    async def __init__(self, flags: Flags) -> None:  # type: ignore[misc]  # Serve awaits it
        from specwhisper_gateway.server import GatewayServer

        configs = configs_on_this_node(GatewayConfig, flags, may_be_local=True)
        self._config = configs[0]  # its port may be any of the range

        async def start(config: GatewayConfig) -> tuple[GatewayServer, asyncio.Task[None]]:
            server = GatewayServer(config)
            serving = asyncio.create_task(server.serve())
            ready = asyncio.create_task(server.ready.wait())
            await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if serving.done():
                await serving
                raise NotServing("The gateway has ended before it was ready.")
            return server, serving

        self._server, self._serving = await started(start, configs)

    async def client_address(self) -> str:
        return advertised_address(self._server.address)

    async def check_health(self) -> None:
        """Raise unless the gateway answers in time; its draft servers need not."""
        if self._serving.done():
            raise NotServing("The gateway has ended.")
        await check_http(self._server.address, self._config.tls)

    def record_autoscaling_stats(self) -> dict[str, float]:
        return {"open_sessions": float(self._server.num_transcriptions)}

    async def __del__(self) -> None:
        """Let open requests end; Serve awaits it."""
        self._server.stop()
        await self._serving
