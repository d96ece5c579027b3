"""Canonical audio as FLAC and back, in memory and without loss."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import soundfile

from specwhisper.errors import InvalidAudio
from specwhisper.types import SAMPLE_RATE

MAGIC = b"fLaC"


def encode(pcm: bytes) -> bytes:
    """Compress 16 kHz mono s16le samples, at least one."""
    stream = BytesIO()
    soundfile.write(stream, np.frombuffer(pcm, "<i2"), SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    return stream.getvalue()


def decode(data: bytes, max_samples: int) -> bytes:
    """Expand to at most ``max_samples`` of 16 kHz mono s16le.

    Raise :class:`InvalidAudio` for another format, damaged data, or more samples, whatever the header
    announces.
    """
    if not data.startswith(MAGIC):  # libsndfile would open any other format it knows
        raise InvalidAudio("The audio is announced as FLAC but is not a FLAC stream.")
    try:
        with soundfile.SoundFile(BytesIO(data)) as stream:
            found = (stream.samplerate, stream.channels, stream.subtype)
            if found != (SAMPLE_RATE, 1, "PCM_16"):
                raise InvalidAudio(
                    f"The FLAC audio has {stream.samplerate} Hz, {stream.channels} channel(s) and samples of "
                    f"{stream.subtype}; send {SAMPLE_RATE} Hz, 1 channel and PCM_16."
                )
            samples = stream.read(max_samples + 1, dtype="int16")
            is_cut = len(samples) < min(stream.frames, max_samples + 1)
    except soundfile.LibsndfileError as error:
        raise InvalidAudio(f"The FLAC audio cannot be decoded: {error.error_string}") from error
    if is_cut:
        raise InvalidAudio(f"The FLAC audio ends after {len(samples)} samples, before the end it announces.")
    if len(samples) > max_samples:
        raise InvalidAudio(f"The FLAC audio holds more than {max_samples} samples; send smaller pieces.")
    return bytes(samples.astype("<i2", copy=False).tobytes())
