"""Work that is cancelled when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from fastapi import Request

from specwhisper_gateway.errors import ClientGone

T = TypeVar("T")


async def cancel_on_disconnect(request: Request, work: Awaitable[T]) -> T:
    """Wait for work, and cancel it when the connection closes.

    The request's body must have been read.
    """
    working = asyncio.ensure_future(work)
    disconnected = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait((working, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone("The client disconnected before it was answered.")
        return working.result()
    finally:
        working.cancel()
        disconnected.cancel()
        await asyncio.gather(working, disconnected, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
