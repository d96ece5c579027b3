"""Health checks of the server in this process, made over a connection.

They connect as any client does.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from specwhisper.rpc.addresses import split_address
from specwhisper.rpc.tls import ServerTls

ANSWER_TIMEOUT_S = 5.0
SERVING = health_pb2.HealthCheckResponse.SERVING
# Needs no token, and reports the gateway alone, not its draft servers.
REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class NotServing(Exception):
    """A server does not answer, or answers that it does not serve."""


async def check_grpc(address: str, local_socket: Path, within_s: float = ANSWER_TIMEOUT_S) -> None:
    """Raise :class:`NotServing` unless a gRPC server answers that it serves.

    Parameters
    ----------
    address : where it takes connections.
    local_socket : where its health is asked. Its certificate may not name this host, and it may want one of
        its callers.
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
    """Raise :class:`NotServing` unless a gateway answers; any HTTP status will do."""
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
    """Limit the time, and turn errors of the connection into :class:`NotServing`."""
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError as error:
        raise NotServing(f"The server at {address} has not answered within {within_s:g} s.") from error
    except OSError as error:
        raise NotServing(f"The server at {address} does not answer: {error}") from error
    except grpc.aio.AioRpcError as error:
        raise NotServing(f"The server at {address} does not answer: {error.details()}") from error
