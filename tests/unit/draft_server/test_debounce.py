"""Urgent changes are reported at once, others together, and none is lost."""

from __future__ import annotations

import asyncio

import pytest

from specwhisper_draft_server.sessions.session import Debouncer


@pytest.fixture
def long_interval(monkeypatch):
    """Make the interval longer than any test."""
    monkeypatch.setattr("specwhisper_draft_server.sessions.session.INTERVAL_S", 3_600.0)


async def settled(task: asyncio.Task[None]) -> bool:
    """Return whether a task is done once all ready tasks have run."""
    for _ in range(10):
        await asyncio.sleep(0)
    return task.done()


async def test_the_first_change_is_reported_at_once(long_interval):
    changes = Debouncer()
    waiting = asyncio.create_task(changes.wait())
    assert not await settled(waiting)
    changes.notify()
    await waiting


async def test_an_urgent_change_is_reported_together_with_earlier_ones(long_interval):
    changes = Debouncer()
    changes.notify()
    await changes.wait()
    changes.notify()
    waiting = asyncio.create_task(changes.wait())
    assert not await settled(waiting)
    changes.notify(urgent=True)
    await waiting
    waiting = asyncio.create_task(changes.wait())
    assert not await settled(waiting), "both are reported"
    waiting.cancel()


async def test_each_urgent_change_is_reported(long_interval):
    changes = Debouncer()
    for _ in range(3):
        changes.notify(urgent=True)
        await changes.wait()


async def test_the_last_change_is_reported_after_the_interval(monkeypatch):
    monkeypatch.setattr("specwhisper_draft_server.sessions.session.INTERVAL_S", 0.01)
    changes = Debouncer()
    changes.notify()
    await changes.wait()
    changes.notify()
    await changes.wait()


async def test_a_cancelled_wait_loses_no_change(long_interval):
    changes = Debouncer()
    changes.notify()
    await changes.wait()
    changes.notify()
    waiting = asyncio.create_task(changes.wait())
    assert not await settled(waiting)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    changes.notify(urgent=True)
    await changes.wait()
