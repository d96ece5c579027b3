"""What cannot wait is told at once, everything else is put together, and nothing is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from specwhisper_draft_server import debounce as changes
from specwhisper_draft_server.debounce import Changes


@pytest.fixture
def an_hour(monkeypatch):
    """Lets what can wait do so for longer than any test."""
    monkeypatch.setattr(changes, "TELL_EVERY_S", 3_600.0)


async def settled(task: asyncio.Task[None]) -> bool:
    """Whether a task is done once everything that is ready has run."""
    for _ in range(10):
        await asyncio.sleep(0)
    return task.done()


async def test_the_first_change_is_told_at_once(an_hour):
    what = Changes()
    waiting = asyncio.create_task(what.wait())
    assert not await settled(waiting)
    what.note()
    await waiting


async def test_what_cannot_wait_takes_along_what_can(an_hour):
    what = Changes()
    what.note()
    await what.wait()
    what.note()
    waiting = asyncio.create_task(what.wait())
    assert not await settled(waiting)
    what.note(is_pressing=True)
    await waiting
    waiting = asyncio.create_task(what.wait())
    assert not await settled(waiting), "both are told"
    waiting.cancel()


async def test_each_pressing_change_is_told(an_hour):
    what = Changes()
    for _ in range(3):
        what.note(is_pressing=True)
        await what.wait()


async def test_the_last_change_is_told_in_the_end(monkeypatch):
    monkeypatch.setattr(changes, "TELL_EVERY_S", 0.01)
    what = Changes()
    what.note()
    await what.wait()
    what.note()
    await what.wait()


async def test_who_stops_to_wait_takes_nothing_away(an_hour):
    what = Changes()
    what.note()
    await what.wait()
    what.note()
    waiting = asyncio.create_task(what.wait())
    assert not await settled(waiting)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    what.note(is_pressing=True)
    await what.wait()
