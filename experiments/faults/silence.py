"""Compressed files of silence, far smaller than their audio."""

from __future__ import annotations

import io

import av
import numpy as np
import soundfile


def flac(length_s: float) -> bytes:
    return _written("FLAC", length_s)


def flac_of_8_channels(length_s: float) -> bytes:
    return _written("FLAC", length_s, 24_000, 8)


def mp3(length_s: float) -> bytes:
    return _written("MP3", length_s)


def opus(length_s: float) -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="ogg") as output:
        encoder = output.add_stream("libopus", rate=48_000, layout="mono")
        encoder.bit_rate = 6_000
        for second in range(round(length_s)):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 48_000), np.float32), "fltp", "mono")
            frame.sample_rate, frame.pts = 48_000, second * 48_000
            output.mux(encoder.encode(frame))
        output.mux(encoder.encode(None))
    return file.getvalue()


def _written(container: str, length_s: float, rate: int = 16_000, channels: int = 1) -> bytes:
    """Write second by second: all the audio would not fit into memory."""
    file = io.BytesIO()
    second = np.zeros((rate, channels), np.int16)
    with soundfile.SoundFile(file, "w", rate, channels, format=container) as output:
        for _ in range(round(length_s)):
            output.write(second)
    return file.getvalue()
