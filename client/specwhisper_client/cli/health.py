"""``specwhisper health``: check whether a server takes calls."""

from __future__ import annotations

import asyncio
from functools import partial
from http.client import HTTPException, HTTPResponse
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

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
    opener = build_opener(ProxyHandler({}), _Https(credentials.tls or ClientTls()))
    try:
        with opener.open(url.rstrip("/") + "/health", timeout=timeout_s):
            return True
    except HTTPError as error:
        error.close()
        return False
    except OSError as error:
        reason = getattr(error, "reason", error)  # urllib's error has the system's
        why = getattr(reason, "strerror", None) or reason
        raise TargetUnavailable(f"No gateway answers at {url} ({why}); is it running?") from error
    except (HTTPException, ValueError) as error:
        raise TargetUnavailable(
            f"The server at {url} does not speak HTTP: check that it is the address of a gateway."
        ) from error


class _Https(HTTPSHandler):
    def __init__(self, tls: ClientTls) -> None:
        super().__init__()
        self._connect = partial(NamedConnection, tls=tls)

    def https_open(self, request: Request) -> HTTPResponse:
        return self.do_open(self._connect, request)
