"""A live session: send audio at some pace and record what a reader sees, with its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from experiments.streaming.measures import Shown
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper_client.streaming import StreamingClient

PIECE_S = 0.1
PIECE_BYTES = int(PIECE_S * SAMPLE_RATE) * BYTES_PER_SAMPLE
DECODING = DecodingOptions(language="en")  # language of the recordings
SILENCE_MS = 300  # that ends an utterance


async def run_session(
    server: str, pcm: bytes, mode: Mode, live: LiveOptions, *, delay_s: float = 0.0, speed: float = 1.0
) -> list[Shown]:
    """Send audio to a draft server after a delay, at ``speed`` times real time; return what is shown."""
    await asyncio.sleep(delay_s)
    shown = []
    endpointing = EndpointingOptions(silence_duration_ms=SILENCE_MS)
    async with StreamingClient(server, DECODING, live=live, endpointing=endpointing, mode=mode) as stream:
        started_s = time.monotonic()

        async def speak() -> None:
            async for piece in paced(pcm, started_s, speed):
                await stream.send(piece)
            await stream.finish()

        speaking = asyncio.create_task(speak())
        try:
            async for update in stream:
                final = "".join(segment.text for segment in update.segments)
                stable = update.verified_text + update.stable_text
                shown.append(Shown(time.monotonic() - started_s, final, stable, update.tentative_text))
            await speaking
        finally:
            speaking.cancel()
    return shown


async def paced(pcm: bytes, started_s: float, speed: float = 1.0) -> AsyncIterator[bytes]:
    """Yield each piece of audio once it has been spoken, as a microphone would.

    It began at ``started_s``, by the monotonic clock.
    """
    for start in range(0, len(pcm), PIECE_BYTES):
        piece = pcm[start : start + PIECE_BYTES]
        spoken_s = started_s + (start + len(piece)) / BYTES_PER_SAMPLE / SAMPLE_RATE / speed
        await asyncio.sleep(spoken_s - time.monotonic())
        yield piece
