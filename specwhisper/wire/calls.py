"""What every call to our services passes through: the door, the count of open calls and the status table."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from specwhisper.errors import ServerDraining
from specwhisper.wire.status import errors_to_status

GRPCS_OWN_SERVICES = "/grpc."  # health and reflection

HANDLER_FACTORIES = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


class Calls(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no type hints
    """Counts the open calls, turns errors into statuses, and refuses new calls once the door is shut.

    Servicers simply raise the project's errors. Health and reflection pass by untouched: they answer until
    the end and keep no server from stopping.
    """

    def __init__(self) -> None:
        self.num_open = 0
        self.is_shut = False
        self._none_open = asyncio.Event()
        self._none_open.set()

    def shut(self) -> None:
        """Refuse every call from now on; those that are open go on."""
        self.is_shut = True

    async def wait_none_open(self) -> None:
        """Wait until the last open call has ended."""
        await self._none_open.wait()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """Put the handler of one of our methods behind the door."""
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method
        if handler is None or method.startswith(GRPCS_OWN_SERVICES):
            return handler
        shape = (handler.request_streaming, handler.response_streaming)
        behaviors = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
        behavior = next(filter(None, behaviors))
        return HANDLER_FACTORIES[shape](
            self._guard(behavior, method), handler.request_deserializer, handler.response_serializer
        )

    def _guard(self, behavior: Callable[..., Any], method: str) -> Callable[..., Any]:
        if inspect.isasyncgenfunction(behavior):

            async def guarded_stream(request: Any, context: Any) -> AsyncIterator[Any]:
                async with self._entered(context, method), aclosing(behavior(request, context)) as responses:
                    async for response in responses:
                        yield response

            return guarded_stream

        async def guarded(request: Any, context: Any) -> Any:
            async with self._entered(context, method):
                return await behavior(request, context)

        return guarded

    @asynccontextmanager
    async def _entered(self, context: Any, method: str) -> AsyncIterator[None]:
        self.num_open += 1
        self._none_open.clear()
        try:
            async with errors_to_status(context, method):
                if self.is_shut:
                    raise ServerDraining("This server is stopping; use another one or try again in a moment.")
                yield
        finally:
            self.num_open -= 1
            if not self.num_open:
                self._none_open.set()
