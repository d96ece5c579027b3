"""Unread responses are limited in bytes; a bad one ends its own session only."""

import asyncio

import pytest

from specwhisper.errors import SlowReader
from specwhisper.types import Commit, Failed, Finished
from specwhisper.wire import codec
from specwhisper_target_server.event_queue import MAX_UNREAD, EventQueue

COMMIT = Commit(window_id=1, base=0, tokens=(1, 2, 3), log_probs=(-1.0,) * 3, margins=(1.0,) * 3)
NUM_BYTES = len(codec.commit_to_proto(COMMIT).SerializeToString()) + 2  # in a response


async def test_responses_keep_their_order():
    queue = EventQueue(on_overflow=pytest.fail)
    for base in range(MAX_UNREAD):
        queue.put_nowait(Commit(window_id=1, base=base, tokens=()))
    assert not queue.is_congested
    queue.put_nowait(Finished())
    assert queue.is_congested
    responses = [await queue.get() for _ in range(MAX_UNREAD)]
    assert [response.commit.base for response in responses] == list(range(MAX_UNREAD))
    assert await queue.get() == Finished()


async def test_too_many_unread_bytes_end_the_session():
    overflow: list[SlowReader] = []
    queue = EventQueue(on_overflow=overflow.append, max_bytes=3 * NUM_BYTES)
    for _ in range(10):  # responses that were read do not count
        for _ in range(3):
            queue.put_nowait(COMMIT)
        for _ in range(3):
            await queue.get()
    for _ in range(5):
        queue.put_nowait(COMMIT)
    assert [type(error) for error in overflow] == [SlowReader]
    assert f"More than {3 * NUM_BYTES} bytes" in str(overflow[0])
    assert queue.empty()  # no response is kept for a peer that does not read


async def test_a_response_that_cannot_be_written_fails_its_own_session():
    queue = EventQueue(on_overflow=pytest.fail)
    queue.put_nowait(Commit(window_id=2**32, base=0, tokens=()))
    assert isinstance(await queue.get(), Failed)


async def test_join_returns_once_all_are_read():
    queue = EventQueue(on_overflow=pytest.fail)
    queue.put_nowait(COMMIT)
    joining = asyncio.create_task(queue.join())
    await queue.get()
    queue.task_done()
    await asyncio.wait_for(joining, 5)
