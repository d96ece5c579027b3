"""Middleware that counts every request, logs it and gives it a name."""

from __future__ import annotations

import logging
import time
import uuid
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from client.gateway.metrics import Metrics
from client.gateway.status import CLIENT_GONE

logger = logging.getLogger(__name__)

UNKNOWN_ROUTE = "unknown"  # one label for all that does not exist: a caller cannot fill the registry
QUIET_ROUTES = ("/health", "/metrics")  # asked every few seconds: only for those who debug
ERROR = "error"


def note_error(scope: Scope, error: BaseException) -> None:
    """Remember what ended a request, for its line in the log and for the metrics."""
    scope["state"][ERROR] = error


class Observing:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        name, status, started_s = uuid.uuid4().hex, CLIENT_GONE, time.perf_counter()

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                MutableHeaders(scope=message)["x-request-id"] = name
            await send(message)

        self._metrics.begin()
        try:
            await self._app(scope, receive, send_named)
        except Exception as error:
            status = HTTPStatus.INTERNAL_SERVER_ERROR.value
            note_error(scope, error)
            raise
        finally:
            self._end(scope, name, status, time.perf_counter() - started_s)

    def _end(self, scope: Scope, name: str, status: int, elapsed_s: float) -> None:
        route = str(getattr(scope.get("route"), "path", UNKNOWN_ROUTE))  # known once it was looked up
        self._metrics.end(route, status, elapsed_s)
        facts = {"request": name, "route": route, "status": status, "elapsed_s": round(elapsed_s, 3)}
        if (error := scope["state"].get(ERROR)) is not None:
            self._metrics.count_error(error)
            facts["error"] = type(error).__name__
        logger.log(logging.DEBUG if route in QUIET_ROUTES else logging.INFO, "answered", extra=facts)
