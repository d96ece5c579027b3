"""Streams side by side, spoken in real time for minutes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic

from experiments.common.models.speech import spoken_utterances, talk
from experiments.common.oracle import ClientLog, ReceivedUpdate, live_violations
from experiments.common.servers.clients import send_at_pace
from specwhisper.errors import SpecWhisperError
from specwhisper.options import DecodingOptions
from specwhisper.types import SAMPLE_RATE
from specwhisper_client.streaming import StreamingClient

STAGGER_S = 0.3
UTTERANCE_S, PAUSE_S = 6.4, 1.6


@dataclass(frozen=True, slots=True)
class Stream:
    """Outcome of one stream.

    Attributes
    ----------
    lag_s : time from the end of the audio to the last text.
    longest_wait_s : between two commits.
    """

    violations: tuple[str, ...]
    num_reconnects: int
    lag_s: float
    longest_wait_s: float


async def run_streams(address: str, num: int, length_s: float) -> list[Stream]:
    """Speak into so many streams at once, each a moment after the one before."""
    pcm = talk(spans(length_s), length_s)
    spoken_utterances(pcm)  # before anybody listens: it takes a while
    return list(await asyncio.gather(*(stream(address, pcm, i * STAGGER_S) for i in range(num))))


def spans(length_s: float) -> tuple[tuple[float, float], ...]:
    """Return utterances with pauses between them."""
    num = int((length_s - 1.0) / (UTTERANCE_S + PAUSE_S))
    begins = (1.0 + i * (UTTERANCE_S + PAUSE_S) for i in range(num))
    return tuple((begin_s, begin_s + UTTERANCE_S) for begin_s in begins)


async def stream(address: str, pcm: bytes, start_after_s: float) -> Stream:
    """Speak into one."""
    await asyncio.sleep(start_after_s)
    log, num_committed, began_s = ClientLog("stream"), 0, monotonic()
    async with StreamingClient(
        address, DecodingOptions.greedy(language="en"), with_statistics=True
    ) as client:
        speaking = asyncio.create_task(send_at_pace(client, pcm, speed=1.0))
        try:
            async for update in client:
                if update.statistics is not None:
                    num_committed = update.statistics.num_committed
                received = ReceivedUpdate(monotonic(), update.segments, num_committed, update.received_s)
                log.updates.append(received)
        except SpecWhisperError as error:
            log.error = f"{type(error).__name__}: {error}"
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
    waits_s = [b - a for a, b in pairwise(log.progress_s)]
    return Stream(
        tuple(map(str, live_violations(log, spoken_utterances(pcm)))),
        client.num_reconnects,
        monotonic() - began_s - len(pcm) / 2 / SAMPLE_RATE,
        max(waits_s, default=0.0),
    )
