"""Middleware that counts every request, logs it and gives it a name."""

from __future__ import annotations

import logging
import time
import uuid
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.routing import Match, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from client.gateway.metrics import Metrics
from client.gateway.status import CLIENT_GONE

logger = logging.getLogger(__name__)

UNKNOWN_ROUTE = "unknown"  # one label for all that does not exist: a caller cannot fill the registry
QUIET_ROUTES = ("/health", "/metrics")  # asked every few seconds: only for those who debug


class Observing:
    """Wraps the application.

    Parameters
    ----------
    router : names the route that a path belongs to.
    """

    def __init__(self, app: ASGIApp, router: Router, metrics: Metrics) -> None:
        self._app = app
        self._router = router
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route, status, name = self._route(scope), CLIENT_GONE, uuid.uuid4().hex
        started_s = time.perf_counter()

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = name
            await send(message)

        self._metrics.begin(route)
        try:
            await self._app(scope, receive, send_named)
        except Exception:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            raise
        finally:
            elapsed_s = time.perf_counter() - started_s
            self._metrics.end(route, status, elapsed_s)
            level = logging.DEBUG if route in QUIET_ROUTES else logging.INFO
            facts = {"request": name, "route": route, "status": int(status), "elapsed_s": round(elapsed_s, 3)}
            logger.log(level, "answered", extra=facts)

    def _route(self, scope: Scope) -> str:
        for route in self._router.routes:
            if route.matches(scope)[0] is not Match.NONE:
                return str(getattr(route, "path", UNKNOWN_ROUTE))
        return UNKNOWN_ROUTE
