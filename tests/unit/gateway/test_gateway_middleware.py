"""Work ends with its client."""

import asyncio

import pytest

from specwhisper_gateway.errors import ClientGone
from specwhisper_gateway.transport.disconnect import cancel_on_disconnect

CLOSED = {"type": "http.disconnect"}


class Request:
    """A request whose client disconnects when ``disconnects`` is set."""

    def __init__(self):
        self.disconnects = asyncio.Event()

    async def receive(self):
        await self.disconnects.wait()
        return CLOSED


async def test_work_is_cancelled_when_its_client_disconnects():
    request, begun, ended = Request(), asyncio.Event(), asyncio.Event()

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(cancel_on_disconnect(request, work()))
    await begun.wait()
    request.disconnects.set()
    with pytest.raises(ClientGone):
        await waiting
    assert ended.is_set()


async def test_cancel_on_disconnect_returns_the_result():
    async def work():
        return 7

    assert await cancel_on_disconnect(Request(), work()) == 7


async def test_cancel_on_disconnect_raises_the_error():
    async def work():
        raise KeyError("lost")

    with pytest.raises(KeyError):
        await cancel_on_disconnect(Request(), work())
