"""What is awaited beside something else comes, or leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import aclosing

import pytest

from specwhisper.rpc.following import Following


async def numbers(goes_on: asyncio.Event):
    yield 1
    await goes_on.wait()
    yield 2


async def test_items_come_and_then_none():
    goes_on = asyncio.Event()
    goes_on.set()
    heard = []
    async with aclosing(numbers(goes_on)) as items:
        while True:
            async with Following(items) as following:
                assert await following.is_there()
                if (item := following.item) is None:
                    break
            heard.append(item)
    assert heard == [1, 2]


async def test_what_has_not_come_in_time_may_still_come():
    goes_on = asyncio.Event()
    async with aclosing(numbers(goes_on)) as items:
        await anext(items)
        async with Following(items) as following:
            assert not await following.is_there(within_s=0)
            done = asyncio.ensure_future(asyncio.sleep(0))
            assert not await following.is_there(done)
            goes_on.set()
            assert await following.is_there()
            assert following.item == 2


async def test_an_iterator_may_be_closed_behind_what_has_not_come():
    is_closed = asyncio.Event()

    async def endless():
        try:
            await asyncio.Event().wait()
            yield
        finally:
            is_closed.set()

    async with aclosing(endless()) as items:
        async with Following(items) as following:
            assert not await following.is_there(within_s=0)
    assert is_closed.is_set()


class Held:
    """What a frame holds."""


async def test_an_error_leaves_no_circle():
    """What the frame holds that learns of it goes with the frame, and need not be collected."""

    async def failing():
        raise ValueError
        yield

    async def learn(held: Held) -> None:
        async with Following(failing()) as following:
            await following.is_there()
            _ = following.item

    held = Held()
    is_held = weakref.ref(held)
    gc.disable()
    try:
        with pytest.raises(ValueError):
            await learn(held)
        del held
        assert is_held() is None
    finally:
        gc.enable()
