"""However many hints a client sends, its target gets them at a pace that it can keep."""

import asyncio

import pytest

from specwhisper.types import TimedHint
from specwhisper_draft_server.link.progress import BURST_S, INTERVAL_S, INTERVAL_S_PER_BYTE, SessionHints


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """Return the waits, none of which ends."""
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)
        await asyncio.Event().wait()

    monkeypatch.setattr("specwhisper_draft_server.link.progress.sleep", wait)
    return waited


async def test_a_flood_of_hints_waits_and_only_its_newest_texts_are_sent(waits):
    most = round(BURST_S / (INTERVAL_S + len("flood") * INTERVAL_S_PER_BYTE))
    hints, received = SessionHints(), []
    sending = asyncio.create_task(hints.send(received.append))
    for start_sample in range(1_000):
        hints.put(TimedHint(start_sample, "flood"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert received == [TimedHint(start_sample, "flood") for start_sample in range(most)]
    sending.cancel()
    hints.put(TimedHint(1, "end"))
    sending = asyncio.create_task(hints.send(received.append))  # another target
    for _ in range(5):
        await asyncio.sleep(0)
    assert received[most:] == [TimedHint(0, "flood"), TimedHint(1, "end")]
    sending.cancel()


async def test_long_hints_wait_longer(waits):
    hints, received = SessionHints(), []
    for start_sample in range(10):
        hints.put(TimedHint(start_sample, "x" * 4_000))
    sending = asyncio.create_task(hints.send(received.append))
    for _ in range(5):
        await asyncio.sleep(0)
    sending.cancel()
    assert len(received) == 2
    assert waits == [pytest.approx(0.45)]


async def test_a_hint_is_sent_as_soon_as_it_comes():
    hints: SessionHints = SessionHints()
    received: asyncio.Queue[TimedHint] = asyncio.Queue()
    sending = asyncio.create_task(hints.send(received.put_nowait))
    for text in ("a", "b"):
        hints.put(TimedHint(0, text))
        assert await received.get() == TimedHint(0, text)
    sending.cancel()


def test_a_recogniser_does_not_replace_what_the_client_has_sent():
    hints = SessionHints()
    hints.put_recognised(TimedHint(0, "recognised"))
    assert hints.take() == [TimedHint(0, "recognised")]
    hints.put(TimedHint(1, "caption"))
    hints.put_recognised(TimedHint(0, "recognised again"))
    assert hints.take() == [TimedHint(1, "caption")]
