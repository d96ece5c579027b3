"""What every call passes through: the door, its name, the count of calls, their limits, the status table."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    nullcontext,
)
from functools import partial
from math import inf
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from specwhisper.errors import InvalidRequest, ServerDraining
from specwhisper.observe.metrics.server import ServerMetrics
from specwhisper.observe.request_id import request_id, told_request_id
from specwhisper.observe.tracing import answering
from specwhisper.rpc.eviction import Tenure
from specwhisper.wire.status import errors_to_status, refusal

GRPCS_OWN_SERVICES = "/grpc."  # health and reflection
REQUEST_S = 20.0  # for the few bytes of who asks for health, which anybody may
OWN_REQUEST_S = 300.0  # for a recording, the largest message: 32 MiB at a megabit a second take 270 s

Entered = Callable[[Any], AbstractAsyncContextManager[Tenure]]
Answers = Callable[[Any, Any], AsyncGenerator[Any]]
Method = TypeVar("Method", bound=Callable[..., Any])
Admission = Callable[[], AbstractContextManager[object]]


def admitted_by(admission: Callable[[Any], AbstractContextManager[object]]) -> Callable[[Method], Method]:
    """Mark a servicer's method whose one request is large: it is read only by whom ``admission`` lets in.

    ``admission(servicer)`` is entered for as long as the call lasts, and raises where there is no room.
    """

    def mark(method: Method) -> Method:
        method.admission = admission  # type: ignore[attr-defined]
        return method

    return mark


class Calls(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no type hints
    """Counts the open calls, turns errors into statuses, and refuses new calls once the door is shut.

    Servicers simply raise the project's errors. Health and reflection answer until the end and keep no server
    from stopping.

    Parameters
    ----------
    max_s : how long a call may last.
    untaken_s : how long a caller may leave an answer unread.
    metrics : where errors are counted.
    """

    def __init__(
        self, max_s: float = inf, untaken_s: float = inf, metrics: ServerMetrics | None = None
    ) -> None:
        self._max_s = max_s
        self._untaken_s = untaken_s
        self._count_error = metrics.count_error if metrics is not None else lambda _: None
        if metrics is not None:
            metrics.watch_draining(lambda: self.is_shut)
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
        if handler is None:
            return None
        method: str = handler_call_details.method
        behaviors = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
        behavior = next(filter(None, behaviors))
        parse = _checked(handler.request_deserializer)
        is_grpcs_own = method.startswith(GRPCS_OWN_SERVICES)
        entered = _visited if is_grpcs_own else partial(self._entered, method=method)
        answers = _answers(behavior)
        if not handler.request_streaming:
            # Read within the call: grpc waits for ever for a request that does not come, and what fails
            # before the handler begins, it calls a failure of the server.
            within_s = REQUEST_S if is_grpcs_own else min(OWN_REQUEST_S, self._max_s)
            answers = _reading(answers, within_s, _admission(behavior))
        # One answer, too, is written within the call: grpc writes it when the handler has ended, for ever
        # where nobody takes it. On the wire they are the same.
        within = _within(answers, entered)
        return grpc.stream_stream_rpc_method_handler(within, parse, handler.response_serializer)

    @asynccontextmanager
    async def _entered(self, context: Any, *, method: str) -> AsyncIterator[Tenure]:
        metadata = context.invocation_metadata() or ()
        request_id.set(told_request_id(metadata))
        self.num_open += 1
        self._none_open.clear()
        try:
            tenure = Tenure(context, self._max_s, self._untaken_s, self._count_error)
            async with errors_to_status(context, method, self._count_error):
                if self.is_shut:
                    raise ServerDraining("This server is stopping; use another one or try again in a moment.")
                with answering(method, metadata), tenure.limited():
                    yield tenure
        finally:
            self.num_open -= 1
            if not self.num_open:
                self._none_open.set()


def _checked(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Make a message's reader that says whose fault it is when there is none in the bytes."""

    def checked(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            raise InvalidRequest(
                "A message holds other bytes than those of the type that this call takes."
            ) from None

    return checked


def _admission(behavior: Callable[..., Any]) -> Admission:
    """Give what has to be entered before a request is read."""
    admission = getattr(behavior, "admission", None)
    return nullcontext if admission is None else partial(admission, behavior.__self__)  # type: ignore[attr-defined]


def _answers(behavior: Callable[..., Any]) -> Answers:
    """Give a handler's answers, be it one or many."""
    if inspect.isasyncgenfunction(behavior):
        return behavior

    async def only_answer(request: Any, context: Any) -> AsyncGenerator[Any]:
        yield await behavior(request, context)

    return only_answer


def _reading(answers: Answers, within_s: float, admission: Admission) -> Answers:
    """Have a handler's one request read within the call, in some time."""

    async def read_then_answer(requests: AsyncIterator[Any], context: Any) -> AsyncGenerator[Any]:
        with admission():
            async with aclosing(answers(await _only(requests, within_s), context)) as responses:
                async for response in responses:
                    yield response

    return read_then_answer


async def _only(requests: AsyncIterator[Any], within_s: float) -> Any:
    """Give the one request of a call."""
    try:
        async with asyncio.timeout(within_s):
            async for request in requests:
                return request
    except TimeoutError:
        raise InvalidRequest(f"The call has sent no request for {within_s:g} s.") from None
    raise InvalidRequest("The call has sent no request.")


def _within(answers: Answers, entered: Entered) -> Answers:
    """Have a handler run within what is entered for each call."""

    async def guarded(request: Any, context: Any) -> AsyncGenerator[Any]:
        has_begun = False
        async with entered(context) as tenure, aclosing(answers(request, context)) as responses:
            async for response in responses:
                if not has_begun:
                    # By itself: behind a first answer that nobody takes, grpc would send it once more with
                    # the status that ends the call, and fail.
                    await context.send_initial_metadata(())
                    has_begun = True
                with tenure.taking():
                    yield response

    return guarded


@asynccontextmanager
async def _visited(context: Any) -> AsyncIterator[Tenure]:
    """Let health and reflection, too, say what was wrong with a request."""
    try:
        yield Tenure(context)
    except InvalidRequest as error:
        await context.abort(*refusal(error))
