"""Live sessions: send a take in real time and record the server's updates with their times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from experiments.streaming.takes import Take
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import SAMPLE_RATE, DecodedStep, Mode, VoiceEvent
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import Update

PIECE_S = 0.1
PIECE_BYTES = int(PIECE_S * SAMPLE_RATE) * BYTES_PER_SAMPLE
TAIL_S = 1.0  # silence after a take, which ends its last utterance
DECODING = DecodingOptions(language="en")  # language of the recordings


@dataclass(frozen=True, slots=True)
class Shown:
    """The text that a reader sees at a moment.

    Attributes
    ----------
    at_s : seconds since the take started.
    final : text that has just become final; ``verified``, the draft's stable text too, and ``draft`` follow
        it and may change.
    speech_start_s : start of an utterance in the take, if just detected; otherwise ``None``.
    """

    at_s: float
    final: str
    verified: str
    draft: str
    speech_start_s: float | None = None


@dataclass(slots=True)
class LiveResult:
    """All updates and counters of a take."""

    shown: list[Shown] = field(default_factory=list)
    steps: list[DecodedStep] = field(default_factory=list)
    num_steps: int = 0
    num_forwards: int = 0
    target_cpu_s: float = 0.0  # CPU time of the target's process, or of the one process
    elapsed_s: float = 0.0

    @property
    def text(self) -> str:
        """The final text."""
        return "".join(shown.final for shown in self.shown)

    @property
    def all_is_final(self) -> bool:
        """Whether no text is left that may change."""
        return not self.shown or not (self.shown[-1].verified + self.shown[-1].draft).strip()


async def run_live_session(
    server: str, take: Take, live: LiveOptions, mode: Mode | None, *, delay_s: float = 0.0
) -> LiveResult:
    """Send a take to a draft server after a delay; return its updates."""
    await asyncio.sleep(delay_s)
    result = LiveResult()
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
                result.shown.append(_shown(update, time.perf_counter() - started_s))
                result.steps += update.steps
                statistics = update.statistics or statistics
            await speaking
        finally:
            speaking.cancel()
        result.elapsed_s = time.perf_counter() - started_s
    result.num_steps = statistics.num_windows
    result.num_forwards = statistics.num_forwards
    return result


async def paced(pcm: bytes, started_s: float) -> AsyncIterator[bytes]:
    """Yield pieces of audio in real time, as a microphone would."""
    for piece in pieces(pcm):
        end_s, pcm_piece = piece
        await asyncio.sleep(max(0.0, started_s + end_s - time.perf_counter()))
        yield pcm_piece


def pieces(pcm: bytes) -> Sequence[tuple[float, bytes]]:
    """Split a take and the silence after it; return each piece with its end in seconds."""
    whole = pcm + bytes(int(TAIL_S * SAMPLE_RATE) * BYTES_PER_SAMPLE)
    cut = [whole[start : start + PIECE_BYTES] for start in range(0, len(whole), PIECE_BYTES)]
    return [((number + 1) * PIECE_S, piece) for number, piece in enumerate(cut)]


def _shown(update: Update, at_s: float) -> Shown:
    final = "".join(segment.text for segment in update.segments)
    speech_start_s = update.speech_at_s if update.speech is VoiceEvent.BEGIN else None
    return Shown(
        at_s, final, update.verified_text + update.stable_text, update.tentative_text, speech_start_s
    )
