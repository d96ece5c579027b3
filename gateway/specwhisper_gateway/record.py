"""Transcribe a file live and write a page that replays it.

python -m specwhisper_gateway.record talk.mp3 > replay.html
"""

from __future__ import annotations

import asyncio
import base64
import io
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import typer

from specwhisper.audio.decode import decode_file
from specwhisper.errors import SpecWhisperError
from specwhisper.options import DecodingOptions
from specwhisper.settings.command_line import takes
from specwhisper.tasks import running
from specwhisper.types import SAMPLE_RATE
from specwhisper.validated import REQUIRED, option, switch
from specwhisper_client.cli.arguments import decoding_part, server_option
from specwhisper_client.streaming import StreamingClient
from specwhisper_gateway.live import ready_message, update_message
from specwhisper_gateway.page_files import replay_page

PEAK_MS = 50
PIECE_BYTES = SAMPLE_RATE * 2 * PEAK_MS // 1000
COMPRESSION = 0.9  # from 0 to 1: 3 kB per second


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    recording: Path = option(
        REQUIRED,
        "Recording, in any format that libsndfile or FFmpeg reads.",
        "FILE",
        is_argument=True,
    )
    server: str = server_option()
    decoding: Mapping[str, Any] = decoding_part("language")
    sound: bool = switch(True, "Include the sound in the replay.")


@takes(RecordOptions)
def record(_: typer.Context, wanted: RecordOptions) -> None:
    """Transcribe a file at the speed of its audio; write the replay to stdout."""
    try:
        pcm = b"".join(decode_file(wanted.recording))
        language = wanted.decoding.get("language")
        session = asyncio.run(recorded(wanted.recording.name, pcm, wanted.server, language))
        sound_part = {"sound": {"at": 0, "url": sound_url(pcm)}} if wanted.sound else {}
        sys.stdout.write(replay_page(session | sound_part))
    except SpecWhisperError as error:
        sys.exit(f"{error}")


async def recorded(
    title: str,
    pcm: bytes,
    server: str,
    language: str | None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> dict[str, Any]:
    """Transcribe PCM at the speed of its audio, and keep every message with its time."""
    pieces = [pcm[start : start + PIECE_BYTES] for start in range(0, len(pcm), PIECE_BYTES)]
    sent = list(accumulate(len(piece) / 2 / SAMPLE_RATE for piece in pieces))
    events: list[dict[str, Any]] = []
    sent_s, started_s = 0.0, time.perf_counter()

    def note(message: dict[str, Any]) -> None:
        message.pop("position", None)  # a replay does not show it
        events.append({"at": round((time.perf_counter() - started_s) * 1000), **message, "sent_s": sent_s})

    async def speak(stream: StreamingClient) -> None:
        nonlocal sent_s
        for piece, end_s in zip(pieces, sent, strict=True):
            await sleep(max(0.0, started_s + end_s - time.perf_counter()))
            await stream.send(piece)
            sent_s = round(end_s, 3)
        await stream.finish()

    async with StreamingClient(server, DecodingOptions(language=language)) as stream:
        async with running(speak(stream)) as (speaking,):
            model = None
            async for update in stream:
                if stream.model is not None and stream.model != model:
                    model = stream.model
                    note(ready_message(model))
                note(update_message(update, stream.resume_point))
            await speaking
    note({"type": "done"})
    return {
        "version": 1,
        "is_paced": True,
        "title": title,
        "about": f"Recorded {time.strftime('%Y-%m-%d %H:%M')}. Text, statistics and times are as recorded.",
        "peak_ms": PEAK_MS,
        "first_peak": 0,
        "length_ms": events[-1]["at"],
        "peaks": [_peak(piece) for piece in pieces],
        "events": events,
    }


def sound_url(pcm: bytes) -> str:
    """Return canonical PCM as a data URL of MP3, which every browser plays."""
    file = io.BytesIO()
    soundfile.write(
        file,
        np.frombuffer(pcm, "<i2"),
        SAMPLE_RATE,
        format="MP3",
        subtype="MPEG_LAYER_III",
        bitrate_mode="VARIABLE",
        compression_level=COMPRESSION,
    )
    return f"data:audio/mpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def _peak(pcm: bytes) -> int:
    return min(255, int(np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)).max(initial=0)) // 128)


if __name__ == "__main__":
    typer.run(record)
