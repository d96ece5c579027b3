"""Follow one client's session from outside: audio in, text out, and how long it took."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from time import perf_counter_ns

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.observe.metrics.tokens import NS_PER_S, Tally
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.types import SAMPLE_RATE, Segment, VoiceEvent
from specwhisper_draft_server.metrics import LIVE, RECORDING, DraftMetrics
from specwhisper_draft_server.sessions.live_session import LiveSession
from specwhisper_draft_server.sessions.merged_transcript import MergedTranscript
from specwhisper_draft_server.sessions.session import Session

MAX_ARRIVALS = 4096  # pieces of audio whose time of arrival is remembered


class Observed:
    """Counts one session, recording or live, while it passes through."""

    def __init__(self, metrics: DraftMetrics, start_sample: int = 0) -> None:
        self._metrics = metrics
        self._tally = Tally(metrics.tokens)
        self._num_samples = start_sample
        # The end of each piece, and when it came.
        self._arrivals: deque[tuple[int, int]] = deque(maxlen=MAX_ARRIVALS)
        self._awaits_text_since_ns: int | None = perf_counter_ns()

    async def hear(self, audio: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """Pass the client's audio on."""
        async for pcm in audio:
            num_samples = len(pcm) // BYTES_PER_SAMPLE
            self._num_samples += num_samples
            self._metrics.audio_s.inc(num_samples / SAMPLE_RATE)
            self._arrivals.append((self._num_samples, perf_counter_ns()))
            yield pcm

    async def follow(
        self, session: Session | LiveSession, updates: AsyncGenerator[list[Segment]]
    ) -> AsyncGenerator[list[Segment]]:
        """Pass on what becomes final."""
        is_live = isinstance(session.builder, LiveTranscript | MergedTranscript)
        if is_live:
            self._awaits_text_since_ns = None  # nobody has said anything yet
        try:
            async with aclosing(updates):
                async for segments in updates:
                    if is_live:
                        self._time_steps(session)
                    self._time_first_text(session, segments, LIVE if is_live else RECORDING)
                    self._tally.count(session.builder.statistics)
                    yield segments
        finally:
            self._tally.count(session.builder.statistics)

    def _time_steps(self, session: Session | LiveSession) -> None:
        """Note who has begun to speak, and how late the text of each step is."""
        if any(mark.event is VoiceEvent.BEGIN for mark in session.speech_events):
            self._awaits_text_since_ns = perf_counter_ns()
        if isinstance(session.builder, LiveTranscript | MergedTranscript):
            for step in session.builder.steps:
                while self._arrivals and self._arrivals[0][0] < step.end_sample:
                    self._arrivals.popleft()
                if self._arrivals:
                    waited_ns = perf_counter_ns() - self._arrivals[0][1]
                    self._metrics.partial_latency_s.observe(waited_ns / NS_PER_S)

    def _time_first_text(self, session: Session | LiveSession, segments: list[Segment], kind: str) -> None:
        if self._awaits_text_since_ns is None:
            return
        builder = session.builder
        if segments or builder.verified_text.strip() or builder.draft_text.strip():
            waited_ns = perf_counter_ns() - self._awaits_text_since_ns
            self._metrics.first_text_s.labels(kind).observe(waited_ns / NS_PER_S)
            self._awaits_text_since_ns = None
