"""However many hints a client sends, its target gets them at a pace that it can keep."""

from __future__ import annotations

import asyncio

from specwhisper.types import HintText
from specwhisper_draft_server.link import paced_hints
from specwhisper_draft_server.link.paced_hints import MAX_AT_ONCE
from specwhisper_draft_server.sessions.session_hints import SessionHints


async def test_a_flood_of_hints_waits_and_only_its_newest_texts_are_sent(monkeypatch):
    monkeypatch.setattr(paced_hints, "INTERVAL_S", 1_000.0)
    hints, received = SessionHints(), []
    sending = asyncio.create_task(hints.send(received.append))
    for start_sample in range(1_000):
        hints.put(HintText(start_sample, "flood"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert received == [HintText(start_sample, "flood") for start_sample in range(MAX_AT_ONCE)]
    sending.cancel()
    hints.put(HintText(1, "end"))
    sending = asyncio.create_task(hints.send(received.append))  # another target
    for _ in range(5):
        await asyncio.sleep(0)
    assert received[MAX_AT_ONCE:] == [HintText(0, "flood"), HintText(1, "end")]
    sending.cancel()


async def test_a_hint_is_sent_as_soon_as_it_comes():
    hints: SessionHints = SessionHints()
    received: asyncio.Queue[HintText] = asyncio.Queue()
    sending = asyncio.create_task(hints.send(received.put_nowait))
    for text in ("a", "b"):
        hints.put(HintText(0, text))
        assert await received.get() == HintText(0, text)
    sending.cancel()


def test_a_recogniser_does_not_replace_what_the_client_has_sent():
    hints = SessionHints()
    hints.put_recognised(HintText(0, "recognised"))
    assert hints.take() == [HintText(0, "recognised")]
    hints.put(HintText(1, "caption"))
    hints.put_recognised(HintText(0, "recognised again"))
    assert hints.take() == [HintText(1, "caption")]
