"""What a draft server counts; all names begin with ``specwhisper_draft_``."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Protocol

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.kept import KeptAudio
from specwhisper.errors import SpecWhisperError
from specwhisper.observe.metrics.server import ServerMetrics
from specwhisper.observe.metrics.tokens import NS_PER_S, TokenCounters
from specwhisper_draft_server.config import DraftConfig

ROUND_TRIP_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 15)
TEXT_SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
RESUME_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30, 60, 300, 900)
RECORDING, LIVE = "recording", "live"


class Hangs(Protocol):
    """An engine that may hang."""

    hangs: bool


class DraftMetrics(ServerMetrics):
    """Counters of one draft server.

    Attributes
    ----------
    tokens : what sessions have written.
    audio_s, first_text_s, partial_latency_s : of sessions, for who follows them.
    round_trip_s, lost_heartbeats : of the links to targets.
    fallbacks, alone : drafts that failed, and drafts that went on without a target.
    audited, differences, audits_skipped : of the parity audit.
    held : audio that is kept, of the sessions that run.
    """

    def __init__(self, config: DraftConfig, *, model: str = "") -> None:
        super().__init__(
            "specwhisper_draft", model=model, dtype=config.dtype if model else "", device=config.device
        )
        self.gauge("max_sessions", "Sessions that may be open at once.").set(config.max_sessions)
        self.tokens = TokenCounters(self, drafts=True)
        self.audio_s = self.counter("audio_seconds", "Audio that clients have sent.")
        self.first_text_s = self.histogram(
            "first_text_seconds",
            "To the first text: of a recording from its session's beginning, of live audio from where "
            "somebody was heard to begin to speak.",
            TEXT_SECONDS,
            "kind",
        )
        self.partial_latency_s = self.histogram(
            "partial_latency_seconds",
            "Of live audio: from the newest audio of a step to the target's text of it.",
            TEXT_SECONDS,
        )
        self.round_trip_s = self.histogram(
            "round_trip_seconds", "Of heartbeats to a target and back.", ROUND_TRIP_SECONDS
        )
        self.lost_heartbeats = self.counter(
            "lost_heartbeats", "Targets that gave no sign of life until they were given up."
        )
        self.fallbacks = self.counter(
            "fallbacks", "Sessions whose draft failed, which their targets finish alone."
        )
        self.alone = self.counter("alone", "Times that a draft went on alone, for lack of a target.")
        self._resumes = self.counter(
            "session_resumes",
            "Sessions that went on at a target, by the error that they lost one by.",
            "reason",
        )
        self._resume_s = self.histogram(
            "resume_seconds", "From a target that is lost to one that goes on.", RESUME_SECONDS
        )
        self.audited = self.counter(
            "audited_sessions", "Recordings that were decoded again by the target alone."
        )
        self.differences = self.counter("audit_differences", "Those of them whose text was another.")
        self.audits_skipped = self.counter(
            "audits_skipped", "Recordings that were to be, and were not: why.", "reason"
        )
        self.held: set[KeptAudio] = set()
        self.gauge("held_audio_bytes", "Audio that is kept until its text is final.", self._held_bytes)

    def watch_engine(self, drafting: Hangs) -> None:
        """Report whether the draft engine hangs."""
        self.gauge(
            "engine_hangs",
            "1 while the draft engine takes longer than --draft-timeout for a step, or to be placed, else 0.",
            lambda: drafting.hangs,
        )

    def lost(self, error: SpecWhisperError) -> Callable[[], None]:
        """Note that a session has lost its target; call what this gives once it goes on."""
        lost_ns = perf_counter_ns()

        def goes_on() -> None:
            self._resumes.labels(type(error).__name__).inc()
            self._resume_s.observe((perf_counter_ns() - lost_ns) / NS_PER_S)

        return goes_on

    def _held_bytes(self) -> int:
        return BYTES_PER_SAMPLE * sum(audio.num_samples for audio in list(self.held))
