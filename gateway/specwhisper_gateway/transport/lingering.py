"""Middleware that lets a client read why its unfinished upload is refused.

A connection that is closed with unread bytes is reset, and the reset overtakes the answer: the client sees
a broken pipe instead of a 413. So the answer is sent at once, and further bytes are discarded for a while
before the connection is closed.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LINGER_S = 5.0


class Lingering:
    """Wraps the application.

    Parameters
    ----------
    linger_s : how long a refused client may continue to send, in seconds.
    """

    def __init__(self, app: ASGIApp, linger_s: float = LINGER_S) -> None:
        self._app = app
        self._linger_s = linger_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_unread = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        is_waiting = (
            headers.get("expect", "").lower() == "100-continue"
        )  # sends nothing until the body is read

        async def receive_watched() -> Message:
            nonlocal is_unread, is_waiting
            is_waiting = False
            message = await receive()
            is_unread = message["type"] == "http.request" and message.get("more_body", False)
            return message

        async def send_and_linger(message: Message) -> None:
            is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
            if not is_last or not is_unread or is_waiting:
                await send(message)
                return
            await send({**message, "more_body": True})
            try:
                async with asyncio.timeout(self._linger_s):
                    while is_unread:
                        await receive_watched()
            except TimeoutError:
                pass  # it had time to read the answer
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self._app(scope, receive_watched, send_and_linger)
