"""Middleware that counts every request, logs it and gives it a name."""

from __future__ import annotations

import logging
import time
from http import HTTPStatus
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specwhisper.observe.request_id import KEY, request_id, told_request_id
from specwhisper.observe.tracing import HttpAnswer
from specwhisper.rpc.access import ANYBODY
from specwhisper_gateway.metrics import GatewayMetrics
from specwhisper_gateway.status import CLIENT_GONE, answer_to

logger = logging.getLogger(__name__)

UNKNOWN_ROUTE = "unknown"  # one label for all that does not exist: a caller cannot fill the registry
LIVE_ROUTE = "/health/live"  # asked every few seconds, and no work: not even counted
QUIET_ROUTES = ("/health", LIVE_ROUTE, "/metrics")  # as often: only for those who debug
ERROR, CALLER = "error", "caller"
NORMAL, GONE = 1000, 1006  # close codes: as it should be, and without a word
PRIVATE = 4000  # one label for all codes from 3000 on, which clients may choose freely


def note_error(scope: Scope, error: BaseException) -> None:
    """Remember what ended a request, for its line in the log and for the metrics."""
    scope["state"][ERROR] = error


def note_caller(scope: Scope, name: str) -> None:
    """Remember who asks, for the request's line in the log and for what one caller may have."""
    scope["state"][CALLER] = name


def caller_of(connection: HTTPConnection) -> str:
    """Tell by which name who asks is known; none where no keys are asked for."""
    return str(connection.scope["state"].get(CALLER, ANYBODY))


def has_key(connection: HTTPConnection) -> bool:
    """Return whether a caller has shown a key that the gateway knows."""
    return CALLER in connection.scope["state"]


class Observing:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        scope.setdefault("state", {})
        if scope["type"] == "websocket":
            await self._observe_session(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name, status, started_s = _request_id(scope), CLIENT_GONE, time.perf_counter()

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                MutableHeaders(scope=message)[KEY] = name
            await send(message)

        request_id.set(name)  # which the draft server and its target are told, and log
        span = HttpAnswer(scope["method"], scope["headers"])
        self._metrics.begin()
        try:
            await self._app(scope, receive, send_named)
        except Exception as error:
            status = HTTPStatus.INTERNAL_SERVER_ERROR.value
            note_error(scope, error)
            raise
        finally:
            self._end(scope, name, status, time.perf_counter() - started_s)
            span.end(_route_of(scope), {"http.response.status_code": status}, _failure_of(scope))

    async def _observe_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Follow a WebSocket to its end; whoever says first how it ends is believed."""
        name, code, started_s = _request_id(scope), 0, time.perf_counter()

        async def receive_watched() -> Message:
            nonlocal code
            message = await receive()
            if message["type"] == "websocket.disconnect":
                left = int(message.get("code", GONE))
                code = code or (left if left < 3000 else PRIVATE)
            return message

        async def send_watched(message: Message) -> None:
            nonlocal code
            if message["type"] == "websocket.close":
                code = code or int(message.get("code", NORMAL))
            if message["type"] == "websocket.http.response.start":
                code = int(message["status"])
            if message["type"] in ("websocket.accept", "websocket.http.response.start"):
                MutableHeaders(scope=message)[KEY] = name
            await send(message)

        request_id.set(name)
        span = HttpAnswer("GET", scope["headers"])  # as every WebSocket begins
        self._metrics.begin_session()
        try:
            await self._app(scope, receive_watched, send_watched)
        finally:
            route = _route_of(scope)
            self._metrics.end_session(route, code or GONE)
            elapsed_s = time.perf_counter() - started_s
            self._log(
                "session ended", scope, {"request": name, "route": route, "code": code or GONE}, elapsed_s
            )
            is_refused = 0 < code < NORMAL  # by the status of a response, before it was a WebSocket
            kind = "http.response.status_code" if is_refused else "specwhisper.close_code"
            span.end(route, {kind: code or GONE}, _failure_of(scope))

    def _end(self, scope: Scope, name: str, status: int, elapsed_s: float) -> None:
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
    """Give the error that a request ended with, if it is not its client's to mend."""
    error: BaseException | None = scope["state"].get(ERROR)
    is_ours = error is not None and answer_to(error).status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return error if is_ours else None


def _request_id(scope: Scope) -> str:
    """Return the id that a client or a proxy sent, or a new one where it sent none that fits into a log."""
    return told_request_id(HTTPConnection(scope).headers.items())


def _route_of(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", UNKNOWN_ROUTE))  # known once it was looked up
