"""Start, run and stop a gRPC server: limits, health, reflection, metrics, drain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from specwhisper.observe.metrics import ServerMetrics
from specwhisper.rpc.addresses import join_address, listen_error
from specwhisper.rpc.calls import CallInterceptor, OpenCalls
from specwhisper.rpc.channels import keepalive
from specwhisper.rpc.metrics_server import metrics_page, serving_page
from specwhisper.rpc.process import freeze_loaded, stop_signals
from specwhisper.rpc.serving_options import ServingOptions

logger = logging.getLogger(__name__)

HANDSHAKE_S = 20.0  # a client that sends nothing is disconnected
# For a connection without a call; clients open another one by themselves. A connection's age has no limit:
# gRPC would cut off open calls after its grace, and a session may last for hours.
IDLE_CONNECTION_S = 300.0
# Clients without a token may connect too, and each connection is a file of this process. A draft server has
# one, and so has a client with all of its streams.
MAX_CONNECTIONS = 1_000
CLOSE_S = 0.5  # for the last bytes, once none of our own calls is open

# Adds a servicer to a server, as generated: ``partial(add_VerificationServicer_to_server, servicer)``.
AddServicer = Callable[[grpc.aio.Server], Any]
OnDrain = Callable[[], Awaitable[None]]
CHECK_EVERY_S = 5.0
CHECK_WITHIN_S = 60.0  # more than any forward pass or encoding takes: a slow server must not be killed

CheckHealth = Callable[[], Awaitable[None]]  # returns if all is well; else raises, or hangs


@dataclass(frozen=True)
class RunningServer:
    """A started server; addresses are ``HOST:PORT``, and ``beside`` is closed with it."""

    server: grpc.aio.Server
    address: str
    health: Health
    calls: OpenCalls
    metrics_address: str | None
    beside: AsyncExitStack

    async def stop(self, drain_timeout_s: float, on_drain: OnDrain | None = None) -> None:
        """Refuse new calls, wait for open ones up to a timeout, then stop.

        Health is "not serving" from the start.
        """
        await self.health.enter_graceful_shutdown()
        self.calls.is_draining = True
        logger.info("draining", extra={"address": self.address, "open_calls": self.calls.num_open})
        try:
            async with asyncio.timeout(drain_timeout_s):
                if on_drain is not None:
                    await on_drain()
                await self.calls.wait_idle()
        except TimeoutError:
            logger.warning("cut off", extra={"address": self.address, "open_calls": self.calls.num_open})
        finally:
            async with self.beside:
                await self.server.stop(CLOSE_S)
        logger.info("stopped", extra={"address": self.address})


async def start_server(
    services: Mapping[str, AddServicer],
    options: ServingOptions,
    metrics: ServerMetrics | None = None,
    check_health: CheckHealth | None = None,
) -> RunningServer:
    """Start a server of the named services (full protobuf names).

    It starts completely or not at all: if a port is taken, no other one stays bound. It is healthy from the
    start, and with ``check_health`` for as long as that returns in time.
    """
    calls = OpenCalls()
    interceptor = CallInterceptor(
        calls, options.session_timeout_s, options.idle_timeout_s, metrics, options.tokens
    )
    server = grpc.aio.server(
        interceptors=[interceptor],
        options=[
            ("grpc.max_receive_message_length", options.max_message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", options.max_concurrent_streams),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            *keepalive(),
            ("grpc.server_handshake_timeout_ms", round(HANDSHAKE_S * 1000)),
            ("grpc.max_connection_idle_ms", round(IDLE_CONNECTION_S * 1000)),
            ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
            ("grpc.so_reuseport", 0),  # a taken port is an error, not a lottery
        ],
    )
    health_servicer = Health()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    for name, add_servicer in services.items():
        add_servicer(server)
        await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    if options.may_describe:
        names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    metrics_address = None
    async with AsyncExitStack() as beside:
        # Before the gRPC port: grpc never releases a port that was bound and not served.
        if metrics is not None and options.metrics_port is not None:
            metrics_address = await beside.enter_async_context(
                serving_page(
                    metrics_page(metrics.collected),
                    options.metrics_host,
                    options.metrics_port,
                    options.tls,
                    options.tokens,
                )
            )
        address = _listen(server, options)
        beside.push_async_callback(server.stop, None)
        await server.start()
        if metrics_address is not None:
            logger.info("metrics", extra={"address": metrics_address})
        if check_health is not None:
            beside.callback(asyncio.create_task(health_servicer.follow(check_health)).cancel)
        return RunningServer(server, address, health_servicer, calls, metrics_address, beside.pop_all())


def _listen(server: grpc.aio.Server, options: ServingOptions) -> str:
    wanted = join_address(options.host, options.port)
    try:
        if options.tls is None:
            port = server.add_insecure_port(wanted)
        else:
            port = server.add_secure_port(wanted, options.tls.credentials())
    except RuntimeError as error:
        if options.tls is not None:
            options.tls.context()  # raises if certificate or key is the cause
        raise listen_error(options.host, options.port) from error
    if options.local_socket is not None:
        server.add_insecure_port(f"unix:{options.local_socket}")
    return join_address(options.host, port)


async def serve(
    services: Mapping[str, AddServicer],
    options: ServingOptions,
    *,
    on_drain: OnDrain | None = None,
    metrics: ServerMetrics | None = None,
    check_health: CheckHealth | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then stop in order.

    Further signals change nothing. ``on_drain`` runs after health has changed and before open calls are
    waited for: it asks their peers to migrate. ``check_health`` is called every few seconds, as in
    :func:`start_server`. The log line "ready" has the address.
    """
    stop = asyncio.Event()
    with stop_signals(stop.set):
        server = await start_server(services, options, metrics, check_health)
        freeze_loaded()
        logger.info("ready", extra={"address": server.address})
        await stop.wait()
        await server.stop(options.drain_timeout_s, on_drain)


class Health(health.aio.HealthServicer):  # type: ignore[misc]  # grpc has no type hints
    """Answers ``Check``, and refuses ``Watch``.

    Health needs no token, and a watching call never ends: any client could hold calls and connections open.
    A client that receives UNIMPLEMENTED treats the server as healthy, by the protocol's own rule, and
    notices from its calls when the server stops.
    """

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        """Refuse the call."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Health is not watched here: ask Check.")

    async def serve(self, is_serving: bool) -> None:
        """Set the status of every service; after the server has stopped, none serves."""
        status = health_pb2.HealthCheckResponse
        for name in list(self._server_status):
            await self.set(name, status.SERVING if is_serving else status.NOT_SERVING)

    async def follow(self, check: CheckHealth) -> None:
        """Report the result of ``check`` until cancelled.

        A check that takes too long has failed.
        """
        is_well = True
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                async with asyncio.timeout(CHECK_WITHIN_S):
                    await check()
            except Exception as error:  # whatever it is
                if is_well:
                    logger.error("engine does not answer", extra={"error": repr(error)})
                is_well = False
            else:
                if not is_well:
                    logger.info("engine answers again")
                is_well = True
            await self.serve(is_well)
