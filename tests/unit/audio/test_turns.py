"""Recordings of hours leave room for short ones, and for other callers."""

import asyncio
from threading import Event
from time import thread_time

import pytest

from specwhisper.audio.turns import TURN_S, Turn, Turns, decoding_for, in_turn


def work(turn: Turn, num_turns: int, log: list[str], name: str, may_begin: Event | None = None) -> None:
    """Use whole turns; the first one lasts until the others wait."""
    if may_begin is not None:
        may_begin.wait()
    for _ in range(num_turns):
        began_s = thread_time()
        while thread_time() - began_s < TURN_S:
            pass
        log.append(name)
        turn.pass_on()


async def run(*jobs: tuple[str, str, int]) -> str:
    """Run jobs (caller, name, turns) in one thread at a time; return their names in order."""
    turns, log, may_begin, tasks = Turns(max_working=1), [], Event(), []
    for number, (caller, name, num_turns) in enumerate(jobs):
        decoding_for.set(caller)
        turn = Turn(turns)
        tasks.append(
            asyncio.create_task(
                in_turn(turn, work, turn, num_turns, log, name, None if number else may_begin)
            )
        )
        await asyncio.sleep(0)
    while len(turns._waiting) < len(jobs) - 1:
        await asyncio.sleep(0.001)
    may_begin.set()
    await asyncio.gather(*tasks)
    return "".join(log)


async def test_a_short_recording_passes_the_long_ones():
    order = await run(("", "a", 9), ("", "b", 9), ("", "c", 9), ("", "s", 1))
    assert order.index("s") < 4
    assert {*order[:4]} == {*"abcs"}, "each has had a turn"


async def test_one_caller_with_many_recordings_has_as_many_turns_as_one_with_one():
    order = await run(("ann", "a", 6), ("ann", "a", 6), ("ann", "a", 6), ("bob", "b", 6))
    assert order[:13].count("b") >= 5, order


async def test_an_error_ends_a_turn():
    turns = Turns(max_working=1)
    with pytest.raises(ZeroDivisionError):
        await in_turn(Turn(turns), lambda: 1 / 0)
    assert await in_turn(Turn(turns), int) == 0
    assert not turns._had_s
