"""Recordings of hours leave room for short ones, and for other callers."""

import asyncio
from threading import Event
from time import thread_time

import numpy as np
import pytest
import soundfile

from specwhisper.audio.stated import check_stated_length
from specwhisper.audio.turns import TURN_S, Turn, Turns, decoding_for, in_turn
from specwhisper.errors import InvalidAudio


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


@pytest.mark.parametrize("suffix", ["flac", "ogg", "wav"])
def test_a_length_that_the_container_states_is_refused_at_once(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    soundfile.write(path, np.zeros(16_000, np.float32), 8_000)
    check_stated_length(path, 2.5)
    with pytest.raises(InvalidAudio, match=r"is longer than the limit of 1\.5 s: its header states 2\.0 s"):
        check_stated_length(path, 1.5)


def test_a_length_that_no_container_states_is_left_to_the_decoder(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"no audio")
    check_stated_length(path, 1)
    check_stated_length(tmp_path / "none.wav", 1)
