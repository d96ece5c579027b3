"""Helpers for clients of scripted servers: modes, recordings, real-time sending."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from time import monotonic

import numpy as np
import soundfile

from experiments.common.models.scripted import recording
from experiments.common.models.speech import SpeechOrNoiseModel
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper_client.streaming import StreamingClient

MODES = (Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED, Mode.FULL)
LOG_MEL_MAX = {SpeechOrNoiseModel.num_mel_bins: 1.0}  # scripted models ignore it, so it need not be computed
PIECE_SAMPLES = SAMPLE_RATE // 10


@cache
def recording_file(length_s: float, seed: int, folder: Path) -> Path:
    """Write a recording, once: other clients may be reading it."""
    path = folder / f"noise-{length_s:g}-{seed}.wav"
    write_wav(path, recording(length_s, seed))
    return path


def write_wav(path: Path, pcm: bytes) -> None:
    soundfile.write(path, np.frombuffer(pcm, "<i2"), SAMPLE_RATE, subtype="PCM_16")


async def send_at_pace(stream: StreamingClient, pcm: bytes, speed: float) -> None:
    began_s = monotonic()
    for start in range(0, len(pcm) // 2, PIECE_SAMPLES):
        await asyncio.sleep(max(0.0, began_s + start / SAMPLE_RATE / speed - monotonic()))
        await stream.send(pcm[start * 2 : (start + PIECE_SAMPLES) * 2])
    await stream.finish()
