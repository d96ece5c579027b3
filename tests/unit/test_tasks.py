"""A search beside a block ends with it, and its error ends the block."""

import asyncio
from contextlib import nullcontext

import pytest

from specwhisper.errors import DiarizationFailed, InvalidAudio
from specwhisper.tasks import beside


async def fail():
    raise DiarizationFailed("no memory")


async def test_what_the_search_finds_is_there_in_the_block():
    async def find():
        return ["turn"]

    async with beside(find) as turns:
        assert await turns == ["turn"]


async def test_an_error_of_the_search_ends_the_block():
    with pytest.raises(DiarizationFailed, match="no memory"):
        async with beside(fail):
            await asyncio.Event().wait()


async def test_an_error_that_the_block_waits_for_is_raised_once():
    with pytest.raises(DiarizationFailed, match="no memory"):
        async with beside(fail) as turns:
            await turns


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
