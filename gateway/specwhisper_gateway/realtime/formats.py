"""Formats of a realtime client's audio, by OpenAI's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.decode import G711, decode_g711

PCM_RATE = 24_000  # OpenAI's pcm16, in Hz
G711_RATE = 8_000

BETA_NAMES = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
LAWS = {"audio/pcmu": G711.MULAW, "audio/pcma": G711.ALAW}


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """A format of raw samples in one channel; ``rate`` in Hz."""

    name: str = "audio/pcm"
    rate: int = PCM_RATE

    def decode(self, audio: bytes) -> tuple[bytes, bytes]:
        if self.name in LAWS:
            return decode_g711(audio, LAWS[self.name]), b""
        end = len(audio) - len(audio) % BYTES_PER_SAMPLE
        return audio[:end], audio[end:]

    def describe(self) -> dict[str, Any]:
        """Return OpenAI's object, which has no rate for G.711."""
        return {"type": self.name} | ({} if self.name in LAWS else {"rate": self.rate})

    @property
    def beta_name(self) -> str:
        return next(name for name, today in BETA_NAMES.items() if today == self.name)
