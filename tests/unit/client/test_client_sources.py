"""The microphone drops audio when its reader is too slow."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace

from specwhisper_client import sources


async def test_a_late_reader_of_the_microphone_loses_one_stretch_and_gets_one_warning(monkeypatch, caplog):
    callbacks = []

    def open_stream(*, callback, **_):
        callbacks.append(callback)
        return nullcontext()

    async def record(*recorded):
        for piece in recorded:
            callbacks[0](piece, 1, None, None)
        await asyncio.sleep(0)

    sounddevice = SimpleNamespace(RawInputStream=open_stream, PortAudioError=OSError)
    monkeypatch.setattr(sources, "_sounddevice", lambda: sounddevice)
    monkeypatch.setattr(sources, "MAX_UNREAD_PIECES", 4)
    async with sources.microphone() as pieces:
        received = b""
        await record(b"0", b"1", b"2", b"3", b"lost")
        for piece in (b"lost", b"lost", b"4", b"5"):
            received += await anext(pieces)
            await record(piece)
        received += await anext(pieces) + await anext(pieces)
    assert received == b"012345"
    assert caplog.text.count("new audio is dropped") == 1
