"""Metrics of a draft server and of each session; all names begin with ``specwhisper_draft_``."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.kept import KeptAudio
from specwhisper.engine.watchdog import Watchdog
from specwhisper.errors import SpecWhisperError
from specwhisper.observe.metrics import ServerMetrics, Tally, TokenCounters
from specwhisper.types import NS_PER_S, SAMPLE_RATE, Segment, VoiceEvent
from specwhisper_draft_server.config import DraftConfig

if TYPE_CHECKING:
    from specwhisper_draft_server.session import Session, SessionUpdate

ROUND_TRIP_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 15)
TEXT_SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
RESUME_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30, 60, 300, 900)
RECORDING, LIVE = "recording", "live"
MAX_ARRIVALS = 4096  # number of audio pieces whose arrival time is kept


class DraftMetrics(ServerMetrics):
    """Counters of one draft server; ``kept_audio`` is that of open sessions."""

    def __init__(self, config: DraftConfig, *, model: str = "") -> None:
        super().__init__(
            "specwhisper_draft", model=model, dtype=config.dtype if model else "", device=config.device
        )
        self.gauge("max_sessions", "Sessions that may be open at once.").set(config.max_sessions)
        self.tokens = TokenCounters(self, drafts=True)
        self.audio_s = self.counter("audio_seconds", "Audio received from clients.")
        self.first_text_s = self.histogram(
            "first_text_seconds",
            "Time to the first text: from the start of a recording's session, or from the beginning of an "
            "utterance in live audio.",
            TEXT_SECONDS,
            "kind",
        )
        self.final_latency_s = self.histogram(
            "final_latency_seconds",
            "Time from the arrival of live audio to its final text.",
            TEXT_SECONDS,
        )
        self.round_trip_s = self.histogram(
            "round_trip_seconds", "Round trip of heartbeats to a target.", ROUND_TRIP_SECONDS
        )
        self.lost_heartbeats = self.counter(
            "lost_heartbeats", "Streams that ended because the target sent nothing for 15 s."
        )
        self.failed_drafts = self.counter(
            "failed_drafts", "Sessions whose draft failed; they continue in target-only."
        )
        self._resumes = self.counter(
            "session_resumes",
            "Sessions that resumed after the loss of a target, by the error of the loss.",
            "reason",
        )
        self._resume_s = self.histogram(
            "resume_seconds", "Time from the loss of a target to the resumption.", RESUME_SECONDS
        )
        self.parity_checks = self.counter(
            "parity_checks", "Recordings that the parity check has decoded again in target-only."
        )
        self.parity_differences = self.counter(
            "parity_differences", "Parity checks that found a different text."
        )
        self.parity_skipped = self.counter(
            "parity_checks_skipped",
            "Parity checks skipped, by reason: full, size, failed.",
            "reason",
        )
        self.kept_audio: set[KeptAudio] = set()
        self.gauge(
            "held_audio_bytes",
            "Audio that is kept until its text is final.",
            lambda: BYTES_PER_SAMPLE * sum(audio.num_samples for audio in list(self.kept_audio)),
        )

    def watch_engine(self, watchdog: Watchdog) -> None:
        self.gauge(
            "engine_hangs",
            "1 while the draft engine exceeds --draft-timeout, else 0.",
            lambda: watchdog.hangs,
        )

    @contextmanager
    def resuming(self, error: SpecWhisperError) -> Iterator[None]:
        """Count a session that has lost its target, once it has resumed in the body."""
        lost_ns = perf_counter_ns()
        yield
        self._resumes.labels(type(error).__name__).inc()
        self._resume_s.observe((perf_counter_ns() - lost_ns) / NS_PER_S)


class SessionMetrics:
    """Counts one session's tokens and audio, and measures its latencies.

    ``start_sample``: where live audio begins.
    """

    def __init__(self, metrics: DraftMetrics, session: Session, start_sample: int = 0) -> None:
        self._metrics = metrics
        self._session = session
        self._kind = LIVE if session.is_live else RECORDING
        self._tally = Tally(metrics.tokens)
        self._num_samples = start_sample
        # The end sample of each piece, and its arrival time.
        self._arrivals: deque[tuple[int, int]] = deque(maxlen=MAX_ARRIVALS)
        # The first text of live audio is measured from the beginning of speech.
        self._awaits_text_since_ns = perf_counter_ns() if self._kind == RECORDING else None

    @contextmanager
    def counted(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._tally.count(self._session.builder.statistics)

    def on_audio(self, pcm: bytes) -> None:
        num_samples = len(pcm) // BYTES_PER_SAMPLE
        self._num_samples += num_samples
        self._metrics.audio_s.inc(num_samples / SAMPLE_RATE)
        self._arrivals.append((self._num_samples, perf_counter_ns()))

    def on_update(self, update: SessionUpdate) -> None:
        self._measure_final_text(update)
        self._measure_first_text(update.segments)
        self._tally.count(self._session.builder.statistics)

    def _measure_final_text(self, update: SessionUpdate) -> None:
        if any(mark.event is VoiceEvent.BEGIN for mark in update.speech_events):
            self._awaits_text_since_ns = perf_counter_ns()
        if self._kind == RECORDING or not update.segments:
            return
        end_sample = round(update.segments[-1].end_s * SAMPLE_RATE)
        while self._arrivals and self._arrivals[0][0] < end_sample:
            self._arrivals.popleft()
        if self._arrivals:
            waited_ns = perf_counter_ns() - self._arrivals[0][1]
            self._metrics.final_latency_s.observe(waited_ns / NS_PER_S)

    def _measure_first_text(self, segments: Sequence[Segment]) -> None:
        if self._awaits_text_since_ns is None:
            return
        builder = self._session.builder
        if segments or any(
            text.strip() for text in (builder.verified_text, builder.stable_text, builder.tentative_text)
        ):
            waited_ns = perf_counter_ns() - self._awaits_text_since_ns
            self._metrics.first_text_s.labels(self._kind).observe(waited_ns / NS_PER_S)
            self._awaits_text_since_ns = None
