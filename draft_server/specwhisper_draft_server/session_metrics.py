"""Measure a client's session: its audio, its text, and the time between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter_ns

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.observe.metrics.tokens import Tally
from specwhisper.types import NS_PER_S, SAMPLE_RATE, Segment, VoiceEvent
from specwhisper_draft_server.metrics import LIVE, RECORDING, DraftMetrics
from specwhisper_draft_server.sessions.session import Session, SessionUpdate

MAX_ARRIVALS = 4096  # number of audio pieces whose arrival time is kept


class SessionMetrics:
    """Counts one session's tokens and audio, and measures its latencies.

    Parameters
    ----------
    start_sample : where live audio begins.
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
        """Measure the time from the arrival of its newest audio to final live text."""
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
