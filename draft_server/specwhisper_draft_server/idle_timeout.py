"""Clients that fall silent: their streams end, and others get their places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeVar

from specwhisper.errors import IdleClient, InvalidRequest

Request = TypeVar("Request")
Response = TypeVar("Response")


async def unless_idle(
    answer: Callable[[AsyncIterator[Request]], AsyncGenerator[Response]],
    requests: AsyncIterator[Request],
    idle_timeout_s: float,
) -> AsyncGenerator[Response]:
    """Give what ``answer`` makes of a client's requests; :class:`IdleClient` where none come for so long.

    The client is taken to have ended its audio: what it has said becomes final, and is told before the error.
    """
    has_fallen_silent = False

    async def until_silent() -> AsyncGenerator[Request]:
        nonlocal has_fallen_silent
        sent = aiter(requests)
        while True:
            try:
                async with asyncio.timeout(idle_timeout_s):
                    request = await anext(sent)
            except StopAsyncIteration:
                return
            except TimeoutError:
                has_fallen_silent = True
                return
            yield request

    try:
        async with aclosing(answer(until_silent())) as responses:
            async for response in responses:
                yield response
    except InvalidRequest:
        if not has_fallen_silent:  # else it only tells where the client broke off
            raise
    if has_fallen_silent:
        raise IdleClient(f"The client has sent nothing for {idle_timeout_s:g} s: its stream has ended.")
