"""Live transcription for programs without an event loop.

for update in listen(pieces_of_pcm, "127.0.0.1:50051"):
    print(*(segment.text for segment in update.segments), update.verified_text, update.draft_text)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from queue import Queue
from threading import Thread
from typing import Any

from client.streaming import StreamingClient
from client.transcript import Update
from specwhisper.audio.canonical import Samples

MAX_UNREAD_UPDATES = 256  # beyond them the stream waits for the reader


def listen(
    audio: Iterable[bytes | Samples], server: str = "127.0.0.1:50051", **options: Any
) -> Iterator[Update]:
    """Transcribe audio as it comes; the audio's iterator runs in a thread of its own and may block.

    ``options`` are those of :class:`client.streaming.StreamingClient`. Leaving the loop early ends the call.
    """
    updates: Queue[Update | BaseException | None] = Queue(MAX_UNREAD_UPDATES)
    has_left = False

    def put(item: Update | BaseException | None) -> None:
        if not has_left:
            updates.put(item)

    async def run() -> None:
        async with StreamingClient(server, **options) as stream:
            sending = asyncio.create_task(_send(stream, audio))
            try:
                async for update in stream:
                    await asyncio.to_thread(put, update)
                    if has_left:
                        return
                    if sending.done():
                        await sending
                await sending
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            put(error)
        else:
            put(None)

    thread = Thread(target=work, name="live transcription", daemon=True)
    thread.start()
    try:
        while (item := updates.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        has_left = True
        while not updates.empty():  # it may be waiting for room
            updates.get_nowait()


async def _send(stream: StreamingClient, audio: Iterable[bytes | Samples]) -> None:
    try:
        async for piece in _in_thread(iter(audio)):
            await stream.send(piece)
    finally:
        await stream.finish()


async def _in_thread(audio: Iterator[bytes | Samples]) -> AsyncIterator[bytes | Samples]:
    while (piece := await asyncio.to_thread(next, audio, None)) is not None:
        yield piece
