"""Audio on its way: units, chunks of canonical samples, marks of speech."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SAMPLE_RATE = 16_000
HOP_SAMPLES = 160  # one mel frame is 10 ms
WINDOW_FRAMES = 3_000
WINDOW_SAMPLES = WINDOW_FRAMES * HOP_SAMPLES  # 30 s
FRAMES_PER_TIMESTAMP = 2  # one timestamp token is 20 ms
CONTEXT_SAMPLES = 200  # how far a mel frame reaches to either side of its centre


class VoiceEvent(StrEnum):
    """A change between speech and silence in live audio."""

    BEGIN = "begin"  # an utterance begins at a sample
    CUT = "cut"  # a long utterance is cut there, and continues
    END = "end"  # the utterance has ended there
    BREAK = "break"  # the client has ended it there, maybe within a word: no text is continued after it


@dataclass(frozen=True, slots=True)
class VoiceMark:
    """The sample of the stream at which an utterance begins, is cut or ends."""

    event: VoiceEvent
    sample: int


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """Canonical audio: s16le PCM, 16 kHz, mono, from a sample of the stream on.

    A chunk may repeat samples that were sent before; it may not leave a gap.

    Attributes
    ----------
    is_last : whether the stream ends with it.
    marks : where utterances begin, are cut and end in live audio, in this chunk or earlier ones, in order.
    """

    start_sample: int
    pcm: bytes
    is_last: bool = False
    marks: tuple[VoiceMark, ...] = ()


@dataclass(frozen=True, slots=True)
class EndUtterance:
    """The client ends the open utterance here, between two pieces of audio."""
