"""What a client receives: updates while a recording is transcribed, and the transcript at the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import DecodedStep, Mode, Segment, VoiceEvent

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The pair that writes the text; ``draft`` is empty in target-only mode.

    ``is_lossy`` tells that the text may differ from the target's own: a threshold was asked for.
    """

    target: str
    draft: str
    target_weights_digest: str
    mode: Mode
    gamma: int
    is_lossy: bool = False


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The pair behind a server, and what a request may ask of it.

    ``log_mel_max_bins`` are the numbers of mel bins for which a long recording's loudest moment is wanted;
    ``allows_latency_injection`` is whether streams may set ``added_latency_ms``.
    """

    model: ModelInfo
    languages: tuple[str, ...]
    max_message_bytes: int
    max_sessions: int
    software_version: str
    log_mel_max_bins: tuple[int, ...]
    allows_latency_injection: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """News of a running transcription.

    Attributes
    ----------
    segments : segments that have become final; each comes once and in order.
    verified_text : what the target has written behind them.
    draft_text : what the draft expects to follow; it may still change.
    duration_s : length of the recording, where it is known.
    speech : that somebody begins or ends to speak in live audio, ``speech_at_s`` seconds into it.
    received_s : audio that the server has received by now.
    statistics : how the draft has done so far; ``None`` where nothing was told.
    steps : decodings of live audio that were completed since the last update.
    is_unverified : whether ``draft_text`` stands for lack of a target, which will verify it later.
    """

    segments: tuple[Segment, ...]
    verified_text: str
    draft_text: str
    duration_s: float | None = None
    speech: VoiceEvent | None = None
    speech_at_s: float = 0.0
    received_s: float = 0.0
    statistics: SpeculationStatistics | None = None
    steps: tuple[DecodedStep, ...] = ()
    is_unverified: bool = False


@dataclass(frozen=True, slots=True)
class Transcript:
    """A finished transcription.

    Attributes
    ----------
    language, language_name : what is spoken, such as "de" and "german".
    elapsed_s : how long the caller waited for it.
    language_probs : probability by code, where the language was detected.
    """

    segments: tuple[Segment, ...]
    language: str
    language_name: str
    model: ModelInfo
    statistics: SpeculationStatistics
    duration_s: float
    elapsed_s: float
    language_probs: Mapping[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(segment.text for segment in self.segments).strip()

    @property
    def real_time_factor(self) -> float:
        """Waiting time per second of audio; 0 without audio."""
        return self.elapsed_s / self.duration_s if self.duration_s else 0.0
