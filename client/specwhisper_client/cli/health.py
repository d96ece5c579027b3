"""``specwhisper health``: check whether a server takes calls."""

from __future__ import annotations

import asyncio
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import grpc.aio

from specwhisper.errors import TargetUnavailable
from specwhisper.extras import needs_extra
from specwhisper.rpc.channels import OPEN, Credentials, open_channel
from specwhisper.rpc.tls import ClientTls, NamedConnection
from specwhisper.wire.status import error_from_rpc

GATEWAYS = ("http://", "https://")


async def is_serving(server: str, credentials: Credentials = OPEN, *, timeout_s: float = 5.0) -> bool:
    """Return whether a server (``HOST:PORT``) or a gateway (its URL) takes calls.

    A server that stops takes none.

    Raises :class:`TargetUnavailable` if no server answers in time.
    """
    if server.startswith(GATEWAYS):
        return await asyncio.to_thread(_gateway_is_serving, server, credentials, timeout_s)
    with needs_extra("The health of a server", "draft"):
        from grpc_health.v1 import health_pb2, health_pb2_grpc
    async with open_channel(server, credentials) as channel:
        try:
            reply = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=timeout_s
            )
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, server) from error
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def _gateway_is_serving(url: str, credentials: Credentials, timeout_s: float) -> bool:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        connection = (
            HTTPConnection(host, port, timeout=timeout_s)
            if parts.scheme == "http"
            else NamedConnection(host, port, timeout=timeout_s, tls=credentials.tls or ClientTls())
        )
        with closing(connection):
            connection.request("GET", parts.path.rstrip("/") + "/health")
            return connection.getresponse().status == HTTPStatus.OK
    except OSError as error:
        raise TargetUnavailable(
            f"No gateway answers at {url} ({error.strerror or error}); is it running?"
        ) from error
    except (HTTPException, ValueError) as error:
        raise TargetUnavailable(
            f"The server at {url} does not speak HTTP: check that it is the address of a gateway."
        ) from error
