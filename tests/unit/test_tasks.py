"""Neither a search beside a block nor an iterator's next item leaves a task, however it ends."""

import asyncio
import gc
import weakref
from contextlib import aclosing, nullcontext

import pytest

from specwhisper.errors import DiarizationFailed, InvalidAudio
from specwhisper.tasks import NextItem, beside


async def fail():
    raise DiarizationFailed("no memory")


async def test_what_the_search_finds_is_there_in_the_block():
    async def find():
        return ["turn"]

    async with beside(find) as turns:
        assert await turns == ["turn"]


@pytest.mark.parametrize("waits_for_it", [False, True])
async def test_an_error_of_the_search_ends_the_block(waits_for_it):
    with pytest.raises(DiarizationFailed, match="no memory"):
        async with beside(fail) as turns:
            await (turns if waits_for_it else asyncio.Event().wait())


@pytest.mark.parametrize("error", [InvalidAudio("no recording"), None])
async def test_leaving_the_block_ends_the_search(error):
    forever = asyncio.Event()
    with pytest.raises(InvalidAudio, match="no recording") if error else nullcontext():
        async with beside(forever.wait) as turns:
            if error:
                raise error
    assert turns.cancelled()


async def test_cancelling_the_block_ends_the_search():
    started, forever = asyncio.Event(), asyncio.Event()
    searches = []

    async def block():
        async with beside(forever.wait) as turns:
            searches.append(turns)
            started.set()
            await forever.wait()

    running = asyncio.create_task(block())
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert searches[0].cancelled()


async def numbers(proceed: asyncio.Event):
    yield 1
    await proceed.wait()
    yield 2


async def test_items_arrive_and_then_none():
    proceed = asyncio.Event()
    proceed.set()
    received = []
    async with aclosing(numbers(proceed)) as items:
        while True:
            async with NextItem(items) as pending:
                assert await pending.wait()
                if (item := pending.item) is None:
                    break
            received.append(item)
    assert received == [1, 2]


async def test_an_item_may_arrive_after_a_timeout():
    proceed = asyncio.Event()
    async with aclosing(numbers(proceed)) as items:
        await anext(items)
        async with NextItem(items) as pending:
            assert not await pending.wait(timeout_s=0)
            done = asyncio.ensure_future(asyncio.sleep(0))
            assert not await pending.wait(done)
            proceed.set()
            assert await pending.wait()
            assert pending.item == 2


async def test_an_iterator_can_be_closed_while_its_next_item_is_pending():
    is_closed = asyncio.Event()

    async def endless():
        try:
            await asyncio.Event().wait()
            yield
        finally:
            is_closed.set()

    async with aclosing(endless()) as items:
        async with NextItem(items) as pending:
            assert not await pending.wait(timeout_s=0)
    assert is_closed.is_set()


class Referenced:
    """An object that a frame refers to."""


async def test_an_error_leaves_no_reference_cycle():
    """Objects of the receiving frame are freed without the garbage collector."""

    async def failing():
        raise ValueError
        yield

    async def fail(referenced: Referenced) -> None:
        async with NextItem(failing()) as pending:
            await pending.wait()
            _ = pending.item

    referenced = Referenced()
    is_held = weakref.ref(referenced)
    gc.disable()
    try:
        with pytest.raises(ValueError):
            await fail(referenced)
        del referenced
        assert is_held() is None
    finally:
        gc.enable()


async def test_an_error_in_the_moment_in_which_the_block_ends_is_not_logged(caplog):
    async def items():
        yield 1
        raise InvalidAudio("no recording")

    source = items()
    await anext(source)
    async with NextItem(source) as pending:
        assert await pending.wait()
    del pending
    gc.collect()
    await asyncio.sleep(0)
    assert not caplog.records
