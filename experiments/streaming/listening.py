"""Live sessions: a take is spoken to a server in real time, and what it answers is noted with its moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from experiments.streaming.takes import Take
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.live import LiveOptions
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import SAMPLE_RATE, DecodedStep, Mode, VoiceEvent
from specwhisper_client.streaming import LIVE_DECODING, StreamingClient
from specwhisper_client.transcript import Update

PIECE_S = 0.1
PIECE_BYTES = int(PIECE_S * SAMPLE_RATE) * BYTES_PER_SAMPLE
TAIL_S = 1.0  # of silence behind a take, so that its last utterance ends as all others do
DECODING = replace(LIVE_DECODING, language="en")  # as the recordings are


@dataclass(frozen=True, slots=True)
class Shown:
    """What a reader sees at a moment.

    Attributes
    ----------
    at_s : since the take began to be spoken.
    final : text that has become final now; ``verified`` and ``draft`` stand behind it and may change.
    begins_s : where in the take an utterance begins, which is known now; ``None`` for other news.
    """

    at_s: float
    final: str
    verified: str
    draft: str
    begins_s: float | None = None


@dataclass(slots=True)
class Heard:
    """All that became of a take."""

    shown: list[Shown] = field(default_factory=list)
    steps: list[DecodedStep] = field(default_factory=list)
    num_steps: int = 0
    num_forwards: int = 0
    target_cpu_s: float = 0.0  # of the target's process; in one process, of everything
    elapsed_s: float = 0.0

    @property
    def text(self) -> str:
        """The final text."""
        return "".join(shown.final for shown in self.shown)

    @property
    def all_is_final(self) -> bool:
        """Whether nothing was left that might have changed."""
        return not self.shown or not (self.shown[-1].verified + self.shown[-1].draft).strip()


async def listen(
    server: str, take: Take, live: LiveOptions, mode: Mode | None, *, delay_s: float = 0.0
) -> Heard:
    """Speak a take to a draft server, after a delay, and note what comes."""
    await asyncio.sleep(delay_s)
    heard = Heard()
    statistics = SpeculationStatistics()
    async with StreamingClient(server, DECODING, live=live, mode=mode) as stream:
        started_s = time.perf_counter()

        async def speak() -> None:
            async for pcm in paced(take.pcm, started_s):
                await stream.send(pcm)
            await stream.finish()

        speaking = asyncio.create_task(speak())
        try:
            async for update in stream:
                heard.shown.append(_shown(update, time.perf_counter() - started_s))
                heard.steps += update.steps
                statistics = update.statistics or statistics
            await speaking
        finally:
            speaking.cancel()
        heard.elapsed_s = time.perf_counter() - started_s
    heard.num_steps = statistics.num_windows
    heard.num_forwards = statistics.num_forwards + statistics.num_align_forwards
    return heard


async def paced(pcm: bytes, started_s: float) -> AsyncIterator[bytes]:
    """Return pieces of audio at the moment at which a microphone would."""
    for piece in pieces(pcm):
        end_s, pcm_piece = piece
        await asyncio.sleep(max(0.0, started_s + end_s - time.perf_counter()))
        yield pcm_piece


def pieces(pcm: bytes) -> Sequence[tuple[float, bytes]]:
    """Cut a take and the silence behind it; each piece with the second at which it ends."""
    whole = pcm + bytes(int(TAIL_S * SAMPLE_RATE) * BYTES_PER_SAMPLE)
    cut = [whole[start : start + PIECE_BYTES] for start in range(0, len(whole), PIECE_BYTES)]
    return [((number + 1) * PIECE_S, piece) for number, piece in enumerate(cut)]


def _shown(update: Update, at_s: float) -> Shown:
    final = "".join(segment.text for segment in update.segments)
    begins_s = update.speech_at_s if update.speech is VoiceEvent.BEGIN else None
    return Shown(at_s, final, update.verified_text, update.draft_text, begins_s)
