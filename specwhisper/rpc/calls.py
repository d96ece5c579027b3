"""An interceptor that serves every call within its limits.

It checks the token, counts the call, admits it, reads its request and maps its errors to statuses.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from math import inf
from typing import Any, TypeVar
from urllib.parse import unquote

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from specwhisper.errors import (
    InvalidRequest,
    ServerDraining,
    SessionExpired,
    SlowReader,
    SpecWhisperError,
    Unauthenticated,
)
from specwhisper.observe.current_call import address, caller, received_request_id, request_id
from specwhisper.observe.metrics import ServerMetrics
from specwhisper.observe.tracing import call_span
from specwhisper.rpc.tokens import Tokens
from specwhisper.wire.status import errors_to_status, evictions, refusal

logger = logging.getLogger(__name__)

GRPC_SERVICES = "/grpc."  # health and reflection
NO_TOKEN_NEEDED = "/grpc.health.v1.Health/"  # load balancers have no token
GRPC_REQUEST_S = 20.0  # to send one of their requests of a few bytes, for which no token is needed
REQUEST_S = 300.0  # to send our own: 32 MiB, the largest recording, take 270 s at 1 Mbit/s

_sending: set[asyncio.Task[None]] = set()  # keeps a status being sent until its caller reads it, or leaves


class Evictor:
    """Ends one call from outside its handler, at most once. Create it in the task of the handler.

    The reason is a time limit, or a caller that does not read. A grpc.aio server cannot cancel a call, and a
    write to a caller that does not read never returns once flow control is exhausted. So another task sends
    the status, which arrives after the messages that are still unread, and the handler is cancelled, which
    frees the session and its slot.
    """

    def __init__(
        self,
        context: Any,
        max_call_s: float = inf,
        max_write_s: float = inf,
        count_error: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self._context = context
        self._max_call_s = max_call_s
        self._max_write_s = max_write_s
        self._count_error = count_error
        self._handler = asyncio.current_task()
        self._errors = evictions.get([])  # shared by all evictors of the call
        evictions.set(self._errors)

    def call_limit(self) -> AbstractContextManager[None]:
        """Evict the call if the body takes longer than a call may."""
        message = f"The call has lasted {self._max_call_s:g} s, the most for one call: start another one."
        return _limited(self._max_call_s, lambda: self.evict(SessionExpired(message)))

    def write_limit(self) -> AbstractContextManager[None]:
        """Evict the call if the body, which sends one response, takes too long."""
        message = f"No response was read for {self._max_write_s:g} s: the call has ended."
        return _limited(self._max_write_s, lambda: self.evict(SlowReader(message)))

    def evict(self, error: SpecWhisperError) -> None:
        """End the call with the status of an error, unless it is being evicted already."""
        if self._errors:
            return
        self._errors.append(error)
        self._count_error(error)
        logger.info("evicted", extra={"error": type(error).__name__})
        task = asyncio.ensure_future(self._send_status(error))
        _sending.add(task)
        task.add_done_callback(_sending.discard)
        if self._handler is not None:
            self._handler.cancel()

    async def _send_status(self, error: SpecWhisperError) -> None:
        with suppress(Exception):  # abort always raises
            await self._context.abort(*refusal(error))


@contextmanager
def _limited(limit_s: float, on_exceeded: Callable[[], object]) -> Iterator[None]:
    timer = asyncio.get_running_loop().call_later(limit_s, on_exceeded)
    try:
        yield
    finally:
        timer.cancel()


Enter = Callable[[Any], AbstractAsyncContextManager[Evictor]]
Respond = Callable[[Any, Any], AsyncGenerator[Any]]
Method = TypeVar("Method", bound=Callable[..., Any])
Admit = Callable[[], AbstractContextManager[object]]


def admitted_by(admit: Callable[[Any], AbstractContextManager[object]]) -> Callable[[Method], Method]:
    """Mark a servicer's method as one whose request is large.

    Only an admitted call is read. ``admit(servicer)`` is entered before the request is read and exited when
    the call ends. It raises :class:`ServerFull` to refuse the call.
    """

    def mark(method: Method) -> Method:
        method.admit = admit  # type: ignore[attr-defined]
        return method

    return mark


def lasting(method: Method) -> Method:
    """Mark a servicer's method whose calls have no time limit.

    Sessions depend on them, which have limits of their own.
    """
    method.is_lasting = True  # type: ignore[attr-defined]
    return method


class OpenCalls:
    """The open calls of a server's own services; new ones are refused while it drains."""

    def __init__(self) -> None:
        self.num_open = 0
        self.is_draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.num_open += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.num_open -= 1
            if not self.num_open:
                self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until no call is open."""
        await self._idle.wait()


class CallInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no type hints
    """Wraps the handler of each call; servicers just raise the project's errors.

    Health and reflection are served until the end, without limits, and are not counted. Callers without one
    of the tokens are refused, whatever the method, except health.

    ``max_write_s``: time in which the caller must read a response.
    """

    def __init__(
        self,
        calls: OpenCalls,
        max_call_s: float = inf,
        max_write_s: float = inf,
        metrics: ServerMetrics | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self._calls = calls
        self._tokens = tokens
        self._max_call_s = max_call_s
        self._max_write_s = max_write_s
        self._count_error = metrics.count_error if metrics is not None else lambda _: None
        if metrics is not None:
            metrics.watch_draining(lambda: calls.is_draining)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        """Return a method's handler, within the limits of its calls.

        The handler streams both ways, whatever the method: the bytes on the wire are the same. So our own
        code reads a single request and writes a single response, within the limits of the call. gRPC itself
        would wait forever for either, and would report a request that it cannot read as the server's failure.
        """
        method: str = handler_call_details.method
        if self._tokens is not None and not method.startswith(NO_TOKEN_NEEDED):
            metadata = dict(handler_call_details.invocation_metadata or ())
            try:
                caller.set(self._tokens.name_of(metadata.get("authorization")))
            except Unauthenticated as error:
                return self._refusing(method, error)
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        behaviors = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
        behavior = next(filter(None, behaviors))
        if method.startswith(GRPC_SERVICES):
            enter, request_s = _enter_grpc_service, GRPC_REQUEST_S
        else:
            max_call_s = inf if getattr(behavior, "is_lasting", False) else self._max_call_s
            enter = partial(self._enter, method=method, max_call_s=max_call_s)
            request_s = min(REQUEST_S, self._max_call_s)
        handle = _handler(
            enter,
            _admission(behavior),
            None if handler.request_streaming else request_s,
            _responses(behavior),
        )
        parse = _parser(handler.request_deserializer)
        return grpc.stream_stream_rpc_method_handler(handle, parse, handler.response_serializer)

    def _refusing(self, method: str, error: Unauthenticated) -> grpc.RpcMethodHandler:
        """Return a handler that refuses a call; a streaming one serves calls of every shape."""

        async def refuse(_: Any, context: Any) -> None:
            async with errors_to_status(context, method, self._count_error):
                raise error

        return grpc.stream_stream_rpc_method_handler(refuse)

    @asynccontextmanager
    async def _enter(self, context: Any, *, method: str, max_call_s: float) -> AsyncIterator[Evictor]:
        metadata = context.invocation_metadata() or ()
        request_id.set(received_request_id(metadata))
        address.set(unquote(context.peer()).partition(":")[2].rpartition(":")[0])
        with self._calls.counted():
            evictor = Evictor(context, max_call_s, self._max_write_s, self._count_error)
            async with errors_to_status(context, method, self._count_error):
                if self._calls.is_draining:
                    raise ServerDraining(
                        "This server is stopping: use another one, or try again in a moment."
                    )
                with call_span(method, metadata), evictor.call_limit():
                    yield evictor


@asynccontextmanager
async def _enter_grpc_service(context: Any) -> AsyncIterator[Evictor]:
    """Run a call of health or reflection; refuse a request that cannot be read."""
    try:
        yield Evictor(context)
    except InvalidRequest as error:
        await context.abort(*refusal(error))


def _handler(enter: Enter, admit: Admit, request_s: float | None, respond: Respond) -> Respond:
    """Return the handler of a call, which is admitted before a request is read.

    ``request_s``: time to send the one request; ``None`` if the method takes a stream.
    """

    async def handle(requests: AsyncIterator[Any], context: Any) -> AsyncGenerator[Any]:
        async with enter(context) as evictor:
            with admit():
                request = requests if request_s is None else await _only_request(requests, request_s)
                async with aclosing(respond(request, context)) as responses:
                    is_first = True
                    async for response in responses:
                        if is_first:
                            # Sent separately: if the caller does not read the first response, gRPC would send
                            # the metadata again with the final status, and fail.
                            await context.send_initial_metadata(())
                            is_first = False
                        with evictor.write_limit():
                            yield response

    return handle


def _admission(behavior: Callable[..., Any]) -> Admit:
    """Return the admission of a servicer's method; see :func:`admitted_by`."""
    admit = getattr(behavior, "admit", None)
    return nullcontext if admit is None else partial(admit, behavior.__self__)  # type: ignore[attr-defined]


def _responses(behavior: Callable[..., Any]) -> Respond:
    """Return a servicer's method as one that yields its responses, be it one or many."""
    if inspect.isasyncgenfunction(behavior):
        return behavior

    async def only_response(request: Any, context: Any) -> AsyncGenerator[Any]:
        yield await behavior(request, context)

    return only_response


def _parser(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def checked(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            raise InvalidRequest("A message cannot be parsed as the type that this method takes.") from None

    return checked


async def _only_request(requests: AsyncIterator[Any], within_s: float) -> Any:
    try:
        async with asyncio.timeout(within_s):
            async for request in requests:
                return request
    except TimeoutError:
        raise InvalidRequest(f"The call has sent no request for {within_s:g} s.") from None
    raise InvalidRequest("The call has sent no request.")
