"""Live transcription for programs without an event loop.

for update in listen(pieces_of_pcm, "127.0.0.1:50051"):
    print(*(segment.text for segment in update.segments), "|", update.text)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import aclosing, suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any

from specwhisper.audio.canonical import Samples
from specwhisper.tasks import running
from specwhisper_client.live_transcription import LiveTranscription
from specwhisper_client.servers import DEFAULT_SERVER
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import Update

MAX_UNREAD_UPDATES = 256  # above this the stream waits for the reader


def listen(
    audio: Iterable[bytes | Samples], server: str = DEFAULT_SERVER, **options: Any
) -> Iterator[Update]:
    """Transcribe live audio; iterate over the updates.

    Leaving the loop early ends the call.

    Parameters
    ----------
    audio : pieces of audio; the iterator runs in its own thread and may block.
    options : the parameters of :class:`specwhisper_client.streaming.StreamingClient`.
    """
    updates: SimpleQueue[Update | BaseException | None] = SimpleQueue()
    loop = asyncio.new_event_loop()
    room = asyncio.Semaphore(MAX_UNREAD_UPDATES)
    has_left = asyncio.Event()

    async def run() -> None:
        async with StreamingClient(server, **options) as stream:
            live = LiveTranscription(stream, _in_thread(iter(audio)), keeps_segments=False)
            async with aclosing(aiter(live)) as all_updates:
                async for update in all_updates:
                    await room.acquire()
                    updates.put(update)

    async def run_until_left() -> None:
        async with running(run(), has_left.wait()) as (live, left):
            await asyncio.wait((live, left), return_when=asyncio.FIRST_COMPLETED)
            if live.done():
                await live

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(run_until_left())
        except BaseException as error:
            updates.put(error)
        else:
            updates.put(None)

    Thread(target=work, name="live transcription", daemon=True).start()
    try:
        while (item := updates.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            with suppress(RuntimeError):  # the loop has ended: no update is missing
                loop.call_soon_threadsafe(room.release)
            yield item
    finally:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(has_left.set)


async def _in_thread(audio: Iterator[bytes | Samples]) -> AsyncGenerator[bytes | Samples]:
    """Read the pieces in a daemon thread, since the iterator may block forever."""
    wanted: SimpleQueue[Future[bytes | Samples | None] | None] = SimpleQueue()

    def take() -> None:
        while (future := wanted.get()) is not None:
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(next(audio, None))
            except BaseException as error:
                future.set_exception(error)

    Thread(target=take, name="live audio", daemon=True).start()
    try:
        while True:
            future: Future[bytes | Samples | None] = Future()
            wanted.put(future)
            if (piece := await asyncio.wrap_future(future)) is None:
                return
            yield piece
    finally:
        wanted.put(None)
