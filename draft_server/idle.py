"""Clients that fall silent, or take no answers: their streams end, and others get their places."""

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
    """Give what ``answer`` makes of a client's requests; :class:`IdleClient` where nothing moves for so long.

    A client that sends nothing is taken to have ended its audio: what it has said becomes final, and is told
    before the error. Where one takes nothing, ``answer`` is closed at once, although the error can only reach
    it behind what it has not taken yet.
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
        async with aclosing(_while_taken(answer(until_silent()), idle_timeout_s)) as responses:
            async for response in responses:
                yield response
    except IdleClient:
        raise
    except InvalidRequest:
        if not has_fallen_silent:  # else it only tells where the client broke off
            raise
    if has_fallen_silent:
        raise IdleClient(f"The client has sent nothing for {idle_timeout_s:g} s: its stream has ended.")


async def _while_taken(
    responses: AsyncGenerator[Response], idle_timeout_s: float
) -> AsyncGenerator[Response]:
    """Give responses; those that would follow are not made where one is not taken in time."""
    loop = asyncio.get_running_loop()
    closing: list[asyncio.Task[None]] = []

    def close() -> None:
        closing.append(loop.create_task(responses.aclose()))

    async with aclosing(responses):
        async for response in responses:
            timer = loop.call_later(idle_timeout_s, close)
            try:
                yield response
            finally:  # also where the client leaves meanwhile
                timer.cancel()
                await asyncio.gather(*closing)
            if closing:
                raise IdleClient(
                    f"The client has taken no answer for {idle_timeout_s:g} s: its stream has ended."
                )
