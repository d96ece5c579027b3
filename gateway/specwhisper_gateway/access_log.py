"""Assign an id to every request; count, log and trace it."""

from __future__ import annotations

import logging
import time
from http import HTTPStatus
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specwhisper.observe.request_id import KEY, received_request_id, request_id
from specwhisper.observe.tracing import describe_request, server_span
from specwhisper.rpc.access import ANONYMOUS
from specwhisper_gateway.metrics import GatewayMetrics
from specwhisper_gateway.status import CLIENT_GONE, answer_to

logger = logging.getLogger(__name__)

UNKNOWN_ROUTE = "unknown"  # one label for all paths that do not exist: a caller cannot fill the registry
LIVE_ROUTE = "/health/live"  # asked every few seconds, and no work: not even counted
QUIET_ROUTES = ("/health", LIVE_ROUTE, "/metrics")  # asked as often: logged at level debug
ERROR, CALLER = "error", "caller"
NORMAL, GONE = 1000, 1006  # close codes: a regular end; a connection that was lost
PRIVATE = 4000  # one label for all codes from 3000 on, which clients may choose freely


def note_error(scope: Scope, error: BaseException) -> None:
    """Keep the error that ended a request, for its log line and the metrics."""
    scope["state"][ERROR] = error


def note_caller(scope: Scope, name: str) -> None:
    """Keep the caller's name, for the log line and the session limit."""
    scope["state"][CALLER] = name


def caller_of(connection: HTTPConnection) -> str:
    """Return the name of the caller's key, or its address where no keys are needed."""
    client = connection.client
    return str(connection.scope["state"].get(CALLER, client.host if client is not None else ANONYMOUS))


def has_key(connection: HTTPConnection) -> bool:
    """Return whether the caller sent a key that the gateway knows."""
    return CALLER in connection.scope["state"]


class AccessLog:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, a WebSocket or a lifespan event."""
        scope.setdefault("state", {})
        if scope["type"] == "websocket":
            await self._follow_websocket(scope, receive, send)
        elif scope["type"] == "http":
            await self._follow_request(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _follow_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = HTTPConnection(scope).headers.items()
        name, status, started_s = received_request_id(headers), CLIENT_GONE, time.perf_counter()

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                MutableHeaders(scope=message)[KEY] = name
            await send(message)

        request_id.set(name)  # which the draft server and its target are sent, and log
        method = scope["method"]
        with server_span(method, headers, {"http.request.method": method}) as span:
            self._metrics.begin()
            try:
                await self._app(scope, receive, send_named)
            except Exception as error:
                status = HTTPStatus.INTERNAL_SERVER_ERROR.value
                note_error(scope, error)
                raise
            finally:
                self._end_request(scope, name, status, time.perf_counter() - started_s)
                route = _route_of(scope)
                facts = {"http.route": route, "http.response.status_code": status}
                describe_request(span, f"{method} {route}", facts, _failure_of(scope))

    async def _follow_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Follow a WebSocket to its end.

        The first close code counts, whichever side sends it.
        """
        headers = HTTPConnection(scope).headers.items()
        name, code, started_s = received_request_id(headers), 0, time.perf_counter()
        is_accepted = False

        async def receive_watched() -> Message:
            nonlocal code
            message = await receive()
            if message["type"] == "websocket.disconnect":
                left = int(message.get("code", GONE))
                code = code or (left if left < 3000 else PRIVATE)
            return message

        async def send_watched(message: Message) -> None:
            nonlocal code, is_accepted
            if message["type"] == "websocket.accept":
                is_accepted = True
                MutableHeaders(scope=message)[KEY] = name
            elif message["type"] == "websocket.close":
                code = code or (int(message.get("code", NORMAL)) if is_accepted else HTTPStatus.FORBIDDEN)
            await send(message)

        request_id.set(name)
        with server_span("GET", headers, {"http.request.method": "GET"}) as span:
            self._metrics.begin_session()
            try:
                await self._app(scope, receive_watched, send_watched)
            finally:
                route, elapsed_s = _route_of(scope), time.perf_counter() - started_s
                self._metrics.end_session(route, code or GONE)
                self._log(
                    "session ended", scope, {"request": name, "route": route, "code": code or GONE}, elapsed_s
                )
                is_refused = 0 < code < NORMAL  # with the status of a response, before it was a WebSocket
                kind = "http.response.status_code" if is_refused else "specwhisper.close_code"
                facts = {"http.route": route, kind: code or GONE}
                describe_request(span, f"GET {route}", facts, _failure_of(scope))

    def _end_request(self, scope: Scope, name: str, status: int, elapsed_s: float) -> None:
        route = _route_of(scope)
        self._metrics.end()
        if route != LIVE_ROUTE:
            self._metrics.count_request(route, status, elapsed_s)
        self._log("answered", scope, {"request": name, "route": route, "status": status}, elapsed_s)

    def _log(self, message: str, scope: Scope, facts: dict[str, Any], elapsed_s: float) -> None:
        facts["elapsed_s"] = round(elapsed_s, 3)
        if (caller := scope["state"].get(CALLER)) is not None:
            facts["caller"] = caller
        if (error := scope["state"].get(ERROR)) is not None:
            self._metrics.count_error(error)
            facts["error"] = type(error).__name__
        logger.log(logging.DEBUG if facts["route"] in QUIET_ROUTES else logging.INFO, message, extra=facts)


def _failure_of(scope: Scope) -> BaseException | None:
    """Return the error that ended a request, unless the client has to mend it."""
    error: BaseException | None = scope["state"].get(ERROR)
    is_ours = error is not None and answer_to(error).status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return error if is_ours else None


def _route_of(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", UNKNOWN_ROUTE))  # known once it was looked up
