"""Values that a client receives: text updates, their text as deltas, and a server's description."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import ModelInfo
from specwhisper.types import Segment, VoiceEvent

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server's models, and the limits of a request.

    ``allows_latency_injection``: whether streams may set ``added_latency_ms``.
    """

    model: ModelInfo
    languages: tuple[str, ...]
    max_message_bytes: int
    max_sessions: int
    software_version: str
    allows_latency_injection: bool = False


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where another stream continues live audio, on any draft server with the same target.

    Attributes
    ----------
    state : opaque.
    start_sample : index of the first sample that it needs, at 16 kHz.
    num_ends : number of the client's ends of utterances that final text has answered.
    """

    state: bytes
    start_sample: int = 0
    num_ends: int = 0


@dataclass(frozen=True, slots=True)
class Update:
    """New final text of a running transcription, and all of its open text.

    The open text follows the final text and may still change. It has three parts, each of which may be empty.

    Attributes
    ----------
    segments : segments that have become final; each comes once and in order.
    verified_text : the target's text; live, it may still change.
    stable_text : the draft's text after that, as far as it is in four hypotheses in a row.
    tentative_text : the rest of the draft's text.
    settled_text : the beginning of ``verified_text``: complete segments of a recording. They stay unless the
        window is decoded again at another temperature or skipped as silence, or
        ``hallucination_silence_threshold`` leaves them out.
    duration_s : length of the recording, if known.
    speech : beginning or end of speech in live audio, ``speech_at_s`` seconds into it.
    received_s : seconds of audio that the server has received.
    statistics : the draft's figures so far. ``None`` unless requested (``with_statistics``); the last update
        always has them.
    is_unverified : whether some of the draft's text was written while no target was connected.
    """

    segments: tuple[Segment, ...]
    verified_text: str = ""
    stable_text: str = ""
    tentative_text: str = ""
    duration_s: float | None = None
    speech: VoiceEvent | None = None
    speech_at_s: float = 0.0
    received_s: float = 0.0
    statistics: SpeculationStatistics | None = None
    is_unverified: bool = False
    settled_text: str = ""

    @property
    def text(self) -> str:
        """All open text."""
        return self.verified_text + self.stable_text + self.tentative_text


class Deltas:
    """Cuts a transcript into deltas that join to its text, stripped of spaces."""

    def __init__(self) -> None:
        self._final = ""
        self.sent = ""  # by all deltas, less what was taken back

    def add(self, segments: Iterable[Segment], settled: str = "") -> tuple[str, str]:
        """Return the text to take back from the end, and the text to add.

        Parameters
        ----------
        settled : text after the segments that is not final, but very likely to be.
        """
        self._final += "".join(segment.text for segment in segments)
        before, self.sent = self.sent, (self._final + settled).strip()
        same = len(before)
        if not self.sent.startswith(before):
            same = next(i for i in range(same) if self.sent[i : i + 1] != before[i])
        return before[same:], self.sent[same:]
