"""Small files with hours of audio, sent to ``Recognize``: they are refused in little memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from experiments.common.audio import silence
from experiments.common.bench.report import Bar
from experiments.common.serve_scripted import TargetSettings
from experiments.promises.memory import Peak
from experiments.promises.servers import Behaviour, running_pair
from experiments.promises.sessions import OPTIONS
from specwhisper.errors import InvalidAudio, SpecWhisperError
from specwhisper_client.api import TranscriptionClient

MAX_GROWTH_BYTES = 64 * 1024 * 1024
KINDS: dict[str, Callable[[float], bytes]] = {
    "FLAC": silence.flac,
    "FLAC of 8 channels": silence.flac_of_8_channels,
    "Opus": silence.opus,
    "MP3": silence.mp3,
}


@dataclass(frozen=True, slots=True)
class Bomb:
    """Outcome of one bomb.

    Attributes
    ----------
    max_audio_s : longest recording that the server accepts.
    growth_bytes : growth of the draft server's resident memory to its peak.
    """

    kind: str
    max_audio_s: float
    num_bytes: int
    growth_bytes: int
    is_refused: bool


async def measure_bombs(max_audio_s: float, times_longer: float, rounds: int) -> list[Bomb]:
    """Send bombs to a draft server that has decoded every kind of file before.

    Parameters
    ----------
    times_longer : length relative to the limit; the file must still fit into a message.
    """
    found = []
    async with running_pair((TargetSettings(), Behaviour()), max_audio_s=max_audio_s) as pair:
        async with TranscriptionClient(pair.draft.address) as client:
            for make in KINDS.values():
                await client.recognize(make(1.0), OPTIONS)
            for kind, make in KINDS.items():
                data = await asyncio.to_thread(make, times_longer * max_audio_s)
                for _ in range(rounds):
                    peak = Peak(pair.draft.pid)
                    is_refused = False
                    try:
                        await client.recognize(data, OPTIONS)
                    except InvalidAudio:
                        is_refused = True
                    except SpecWhisperError:
                        pass
                    found.append(Bomb(kind, max_audio_s, len(data), peak.growth_bytes(), is_refused))
    return found


def bars(bombs: list[Bomb]) -> list[Bar]:
    """Return the bars."""
    most = max(bombs, key=lambda bomb: bomb.growth_bytes)
    num_taken = sum(not bomb.is_refused for bomb in bombs)
    return [
        Bar(
            f"growth of a draft server that takes {most.max_audio_s:g} s of audio and is sent a bomb, MiB",
            most.growth_bytes / 2**20,
            MAX_GROWTH_BYTES / 2**20,
            f"{most.growth_bytes / 2**20:.1f} at most, by {most.kind} of {most.num_bytes / 1_000:.0f} kB",
        ),
        Bar("bombs that were not refused as such", num_taken, 1, f"{num_taken} of {len(bombs)}"),
    ]
