"""What waits to be read is bounded in bytes; one that cannot be written ends its session and no other."""

import asyncio

import pytest

from specwhisper.errors import SlowReader
from specwhisper.types import Commit, Failed, Finished
from specwhisper.wire import codec
from specwhisper_target_server.event_queue import MAX_UNREAD, Answers

COMMIT = Commit(window_id=1, base=0, tokens=(1, 2, 3), log_probs=(-1.0,) * 3, margins=(1.0,) * 3)
NUM_BYTES = len(codec.commit_to_proto(COMMIT).SerializeToString()) + 2  # in a response


async def test_answers_come_in_order():
    answers = Answers(overflow=pytest.fail)
    for base in range(MAX_UNREAD):
        answers.put_nowait(Commit(window_id=1, base=base, tokens=()))
    assert not answers.are_many
    answers.put_nowait(Finished())
    assert answers.are_many
    told = [await answers.get() for _ in range(MAX_UNREAD)]
    assert [answer.commit.base for answer in told] == list(range(MAX_UNREAD))
    assert await answers.get() == Finished()


async def test_more_bytes_than_may_wait_end_the_session():
    overflow: list[SlowReader] = []
    answers = Answers(overflow=overflow.append, max_bytes=3 * NUM_BYTES)
    for _ in range(10):  # whoever reads has room for ever
        for _ in range(3):
            answers.put_nowait(COMMIT)
        for _ in range(3):
            await answers.get()
    for _ in range(5):
        answers.put_nowait(COMMIT)
    assert [type(error) for error in overflow] == [SlowReader]
    assert f"More than {3 * NUM_BYTES} bytes" in str(overflow[0])
    assert answers.empty()  # it is not kept for somebody who will not read it


async def test_an_answer_that_cannot_be_written_fails_its_own_session():
    answers = Answers(overflow=pytest.fail)
    answers.put_nowait(Commit(window_id=2**32, base=0, tokens=()))
    assert isinstance(await answers.get(), Failed)


async def test_who_waits_for_all_to_be_read_is_woken():
    answers = Answers(overflow=pytest.fail)
    answers.put_nowait(COMMIT)
    joining = asyncio.create_task(answers.join())
    await answers.get()
    answers.task_done()
    await asyncio.wait_for(joining, 5)
