"""Compressed files of silence, far smaller than their audio."""

from __future__ import annotations

import io
from functools import partial

import numpy as np
import soundfile


def written(container: str, length_s: float, rate: int = 16_000, channels: int = 1) -> bytes:
    """Write second by second: all the audio would not fit into memory."""
    file = io.BytesIO()
    second = np.zeros((rate, channels), np.int16)
    subtype = "OPUS" if container == "OGG" else None
    with soundfile.SoundFile(file, "w", rate, channels, subtype, format=container) as output:
        for _ in range(round(length_s)):
            output.write(second)
    return file.getvalue()


flac, mp3 = partial(written, "FLAC"), partial(written, "MP3")
flac_of_8_channels = partial(written, "FLAC", rate=24_000, channels=8)
opus = partial(written, "OGG", rate=48_000)
