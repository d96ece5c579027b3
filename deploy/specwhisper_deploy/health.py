"""Whether a server that runs in this process answers: asked as others ask it, and not for ever."""

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

ANSWER_S = 5.0
SERVING = health_pb2.HealthCheckResponse.SERVING
# Open to all, and asks nobody behind the gateway.
QUESTION = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class NotServing(Exception):
    """A server does not answer, or answers that it serves nobody."""


async def check_grpc(address: str, local_socket: Path, within_s: float = ANSWER_S) -> None:
    """Raise :class:`NotServing` unless a gRPC server takes connections and says that it serves.

    Parameters
    ----------
    address : where it takes connections.
    local_socket : where it is asked: a certificate names others' way to it, and may be asked of callers.
    """
    async with _in_time(address, within_s):
        _, writer = await asyncio.open_connection(*split_address(address))
        writer.close()
        await writer.wait_closed()
        async with grpc.aio.insecure_channel(f"unix:{local_socket}") as channel:
            reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    if reply.status != SERVING:
        raise NotServing(f"The server at {address} does not serve.")


async def check_http(address: str, tls: ServerTls | None, within_s: float = ANSWER_S) -> None:
    """Raise :class:`NotServing` unless a gateway answers; whatever it says, it does."""
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # this process: nobody is to be told apart
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_3  # the server has spoken when the connection is there
    async with _in_time(address, within_s):
        reader, writer = await asyncio.open_connection(*split_address(address), ssl=context)
        try:
            if tls is None or tls.client_roots is None:  # else it wants a certificate before it says more
                writer.write(QUESTION)
                if not (await reader.readline()).startswith(b"HTTP/1.1 "):
                    raise NotServing(f"What answers at {address} is no gateway.")
        finally:
            writer.transport.abort()


@asynccontextmanager
async def _in_time(address: str, within_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError as error:
        raise NotServing(f"The server at {address} has not answered within {within_s:g} s.") from error
    except OSError as error:
        raise NotServing(f"The server at {address} does not answer: {error}") from error
    except grpc.aio.AioRpcError as error:
        raise NotServing(f"The server at {address} does not answer: {error.details()}") from error
