"""Authentication of calls: each call needs a valid token, whatever its method."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import grpc
import grpc.aio

from specwhisper.errors import Unauthenticated
from specwhisper.observe.metrics import ServerMetrics
from specwhisper.rpc.tokens import Tokens
from specwhisper.wire.status import ERROR_KEY

logger = logging.getLogger(__name__)

NO_TOKEN_NEEDED = "/grpc.health.v1.Health/"  # load balancers have no token
ANONYMOUS = ""

# The name of the current call's caller; ANONYMOUS if the server has no tokens.
caller: ContextVar[str] = ContextVar("caller", default=ANONYMOUS)
# The address of its peer, without the port; empty for a socket of this machine.
address: ContextVar[str] = ContextVar("address", default="")


def counted_as() -> str:
    """Return the caller whose limits count this call: its name, or else address."""
    return caller.get() or address.get()


class Access(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no type hints
    """An interceptor that refuses calls without a valid token.

    Calls of methods that do not exist need one too. Health needs none.

    ``metrics``: counts the refused calls.
    """

    def __init__(self, tokens: Tokens, metrics: ServerMetrics | None = None) -> None:
        self._tokens = tokens
        self._count_error = metrics.count_error if metrics is not None else lambda _: None

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        if handler_call_details.method.startswith(NO_TOKEN_NEEDED):
            return await continuation(handler_call_details)
        metadata = dict(handler_call_details.invocation_metadata or ())
        try:
            caller.set(self._tokens.name_of(metadata.get("authorization")))
        except Unauthenticated as error:
            self._count_error(error)
            return _refusal(handler_call_details.method, str(error))
        return await continuation(handler_call_details)


def _refusal(method: str, details: str) -> grpc.RpcMethodHandler:
    """Return a handler that refuses; a streaming one serves calls of every shape."""

    async def refuse(_: Any, context: Any) -> None:
        facts = {"method": method, "error": Unauthenticated.__name__, "peer": context.peer()}
        logger.info("refused", extra={"code": "UNAUTHENTICATED"} | facts)
        metadata = ((ERROR_KEY, Unauthenticated.__name__),)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, details, metadata)

    return grpc.stream_stream_rpc_method_handler(refuse)
