"""The time limit of a transcription, from the start of its upload or session."""

from __future__ import annotations

from asyncio import get_running_loop, timeout_at
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.requests import HTTPConnection

from specwhisper.errors import SessionExpired
from specwhisper_gateway.state import gateway_of

ENDS_AT = "ends_at_s"


@asynccontextmanager
async def within_time(connection: HTTPConnection) -> AsyncGenerator[None]:
    """Raise :class:`SessionExpired` when the time since the first use is over."""
    max_s = gateway_of(connection).config.session_timeout_s
    ends_at_s: float = connection.scope["state"].setdefault(ENDS_AT, get_running_loop().time() + max_s)
    limit = timeout_at(ends_at_s)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        what = "session" if connection.scope["type"] == "websocket" else "request"
        raise SessionExpired(
            f"This {what} has lasted {max_s:g} s, the limit of this gateway: continue in another one."
        ) from error
