"""Assign an id to every request; count, log and trace it."""

from __future__ import annotations

import logging
import time
from http import HTTPStatus
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specwhisper.observe.current_call import ANONYMOUS, REQUEST_ID, received_request_id, request_id
from specwhisper.observe.tracing import describe_request, server_span
from specwhisper_gateway.errors import CLIENT_GONE, answer_to
from specwhisper_gateway.metrics import GatewayMetrics

logger = logging.getLogger(__name__)

UNKNOWN_ROUTE = "unknown"  # one label for all paths that do not exist: a caller cannot fill the registry
LIVE_ROUTE = "/health/live"  # asked every few seconds, and no work: not even counted
QUIET_ROUTES = ("/health", LIVE_ROUTE, "/metrics")  # asked as often: logged at level debug
ERROR, CALLER = "error", "caller"
NORMAL, GONE = 1000, 1006  # close codes: a regular end; a connection that was lost
PRIVATE = 4000  # one label for all codes of 3000 and above, which clients may choose freely


def note_error(scope: Scope, error: BaseException) -> None:
    scope["state"][ERROR] = error


def note_caller(scope: Scope, name: str) -> None:
    scope["state"][CALLER] = name


def caller_of(connection: HTTPConnection) -> str:
    """Return the name of the caller's key, or its address where no keys are needed."""
    client = connection.client
    return str(connection.scope["state"].get(CALLER, client.host if client is not None else ANONYMOUS))


def has_key(connection: HTTPConnection) -> bool:
    return CALLER in connection.scope["state"]


class AccessLog:
    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Follow a request or a WebSocket to its end.

        The first close code of a WebSocket counts, whichever side sends it.
        """
        scope.setdefault("state", {})
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        is_request, is_accepted, code = scope["type"] == "http", False, 0
        headers = HTTPConnection(scope).headers.items()
        name, method, started_s = (
            received_request_id(headers),
            scope.get("method", "GET"),
            time.perf_counter(),
        )

        async def receive_watched() -> Message:
            nonlocal code
            message = await receive()
            if message["type"] == "websocket.disconnect":
                left = int(message.get("code", GONE))
                code = code or (left if left < 3000 else PRIVATE)
            return message

        async def send_watched(message: Message) -> None:
            nonlocal code, is_accepted
            match message["type"]:
                case "http.response.start":
                    code = int(message["status"])
                    MutableHeaders(scope=message)[REQUEST_ID] = name
                case "websocket.accept":
                    is_accepted = True
                    MutableHeaders(scope=message)[REQUEST_ID] = name
                case "websocket.close":
                    code = code or (int(message.get("code", NORMAL)) if is_accepted else HTTPStatus.FORBIDDEN)
            await send(message)

        open_now = self._metrics.active_requests if is_request else self._metrics.active_sessions
        request_id.set(name)  # which the draft server and its target are sent, and log
        with server_span(method, headers, {"http.request.method": method}) as span:
            try:
                with open_now.track_inprogress():
                    await self._app(scope, receive_watched, send_watched)
            except Exception as error:
                if is_request:
                    code = HTTPStatus.INTERNAL_SERVER_ERROR.value
                    note_error(scope, error)
                raise
            finally:
                code = code or (CLIENT_GONE if is_request else GONE)
                self._end(scope, name, code, time.perf_counter() - started_s)
                route = _route_of(scope)
                has_status = is_request or code < NORMAL
                kind = "http.response.status_code" if has_status else "specwhisper.close_code"
                describe_request(
                    span, f"{method} {route}", {"http.route": route, kind: code}, _failure_of(scope)
                )

    def _end(self, scope: Scope, name: str, code: int, elapsed_s: float) -> None:
        route, is_request = _route_of(scope), scope["type"] == "http"
        facts: dict[str, Any] = {"request": name, "route": route, "status" if is_request else "code": code}
        facts["elapsed_s"] = round(elapsed_s, 3)
        if (caller := scope["state"].get(CALLER)) is not None:
            facts["caller"] = caller
        if (error := scope["state"].get(ERROR)) is not None:
            self._metrics.errors.labels(type(error).__name__).inc()
            facts["error"] = type(error).__name__
        if not is_request:
            self._metrics.sessions.labels(route, str(code)).inc()
            logger.info("session ended", extra=facts)
            return
        if route != LIVE_ROUTE:
            self._metrics.requests.labels(route, str(code)).inc()
            self._metrics.latency_s.labels(route).observe(elapsed_s)
        level = logging.DEBUG if route in QUIET_ROUTES else logging.INFO
        logger.log(level, "answered", extra=facts)


def _failure_of(scope: Scope) -> BaseException | None:
    """Return the error that ended a request, unless it is the client's fault."""
    error: BaseException | None = scope["state"].get(ERROR)
    is_ours = error is not None and answer_to(error).status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return error if is_ours else None


def _route_of(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", UNKNOWN_ROUTE))  # known once it was looked up
