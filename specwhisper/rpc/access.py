"""The one door that every call passes: who is not known by a token is turned away, whatever he asks for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import grpc
import grpc.aio

from specwhisper.errors import Unauthenticated
from specwhisper.observe.metrics.server import ServerMetrics
from specwhisper.rpc.tokens import Tokens
from specwhisper.wire.status import ERROR_KEY

logger = logging.getLogger(__name__)

OPEN_TO_ALL = "/grpc.health.v1.Health/"  # whoever balances loads knows no tokens
ANYBODY = ""

# The name of who makes the call that is being answered; ANYBODY where no tokens are asked for.
caller: ContextVar[str] = ContextVar("caller", default=ANYBODY)


class Access(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no type hints
    """Asks every call for a token, health excepted; also calls of methods that do not exist."""

    def __init__(self, tokens: Tokens, metrics: ServerMetrics | None = None) -> None:
        """Let those in who have one of these tokens; count the others, if there are metrics."""
        self._tokens = tokens
        self._count_error = metrics.count_error if metrics is not None else lambda _: None

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """Let a call in, or answer it at the door."""
        if handler_call_details.method.startswith(OPEN_TO_ALL):
            return await continuation(handler_call_details)
        metadata = dict(handler_call_details.invocation_metadata or ())
        try:
            caller.set(self._tokens.name_of(metadata.get("authorization")))
        except Unauthenticated as error:
            self._count_error(error)
            return _turned_away(handler_call_details.method, str(error))
        return await continuation(handler_call_details)


def _turned_away(method: str, details: str) -> grpc.RpcMethodHandler:
    """Make a handler that refuses; a stream's is right for calls of every shape."""

    async def refuse(_: Any, context: Any) -> None:
        facts = {"method": method, "error": Unauthenticated.__name__, "peer": context.peer()}
        logger.info("refused", extra={"code": "UNAUTHENTICATED"} | facts)
        metadata = ((ERROR_KEY, Unauthenticated.__name__),)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, details, metadata)

    return grpc.stream_stream_rpc_method_handler(refuse)
