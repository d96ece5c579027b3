"""A microphone whose server is slow."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace

from specwhisper_client import sources


async def test_who_is_behind_loses_one_stretch_and_is_warned_once(monkeypatch, caplog):
    callbacks = []

    def opened(*, callback, **_):
        callbacks.append(callback)
        return nullcontext()

    async def say(*said):
        for piece in said:
            callbacks[0](piece, 1, None, None)
        await asyncio.sleep(0)

    sounddevice = SimpleNamespace(RawInputStream=opened, PortAudioError=OSError)
    monkeypatch.setattr(sources, "_sounddevice", lambda: sounddevice)
    monkeypatch.setattr(sources, "MAX_UNREAD_PIECES", 4)
    async with sources.microphone() as pieces:
        heard = b""
        await say(b"0", b"1", b"2", b"3", b"lost")
        for piece in (b"lost", b"lost", b"4", b"5"):
            heard += await anext(pieces)
            await say(piece)
        heard += await anext(pieces) + await anext(pieces)
    assert heard == b"012345"
    assert caplog.text.count("what is said now is lost") == 1
