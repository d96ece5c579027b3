"""G.711 (mu-law and A-law), the codecs of telephones: 8 bits for each sample."""

from __future__ import annotations

from enum import StrEnum
from io import BytesIO

import soundfile

from specwhisper.audio.canonical import MIN_SAMPLE_RATE


class G711(StrEnum):
    """A law; the values are libsndfile's names."""

    MULAW = "ULAW"
    ALAW = "ALAW"


def decode_g711(data: bytes, law: G711) -> bytes:
    """Decode to s16le, twice as many bytes; each byte is decoded by itself."""
    if not data:
        return data
    samples, _ = soundfile.read(
        BytesIO(data), dtype="int16", format="RAW", subtype=law, samplerate=MIN_SAMPLE_RATE, channels=1
    )
    decoded: bytes = samples.astype("<i2", copy=False).tobytes()
    return decoded
