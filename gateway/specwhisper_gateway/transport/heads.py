"""Limits on the head of a request.

Uvicorn limits only the size of an incomplete head.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from specwhisper_gateway.errors import HeadTooLarge
from specwhisper_gateway.handlers import refusal

MAX_HEAD_BYTES = 16 * 1024
MAX_LINE_BYTES = 8 * 1024  # the limit of websockets too, which parses a handshake again
MAX_HEADERS = 100
REQUEST_LINE_BYTES = len("OPTIONS  HTTP/1.1\r\n")
HEADER_LINE_BYTES = len(": \r\n")


class HeadLimit:
    """Wraps the application; a request with too large a head does not reach it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with 431."""
        if scope["type"] in ("http", "websocket"):
            try:
                check_head(scope)
            except HeadTooLarge as error:
                await refusal(scope, error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def check_head(scope: Scope) -> None:
    """Raise :class:`HeadTooLarge` for too many bytes, or too many or too long lines."""
    lines = [len(name) + len(value) + HEADER_LINE_BYTES for name, value in scope["headers"]]
    target = len(scope["raw_path"]) + len(scope["query_string"]) + REQUEST_LINE_BYTES
    if len(lines) > MAX_HEADERS or max((target, *lines)) > MAX_LINE_BYTES:
        raise HeadTooLarge
    if target + sum(lines) > MAX_HEAD_BYTES:
        raise HeadTooLarge
