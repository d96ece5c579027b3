"""Prometheus metrics of a gateway."""

from __future__ import annotations

from prometheus_client import ProcessCollector

from specwhisper.observe.metrics import COUNTED, Registry
from specwhisper.rpc.session_limiter import SessionLimiter
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import Transcription

# From a list of models to a long recording.
SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class GatewayMetrics(Registry):
    """Metrics of one gateway; all names begin with ``specwhisper_gateway_``."""

    def __init__(self) -> None:
        super().__init__("specwhisper_gateway")
        ProcessCollector(registry=self.collected)
        self.export_build(model="", dtype="", device="")  # its models run elsewhere
        self.requests = self.counter("requests", "Requests answered.", "route", "status")
        self.errors = self.counter("errors", "Requests that ended with an error.", "kind")
        self._audio_s = self.counter("audio_seconds", "Audio of completed transcriptions.")
        self._counted = {field: self.counter(name, meaning) for name, (field, meaning) in COUNTED.items()}
        self.active_requests = self.gauge("active_requests", "Open requests, this one included.")
        self.sessions = self.counter("sessions", "WebSocket sessions that have ended.", "route", "code")
        self.active_sessions = self.gauge("active_sessions", "Open WebSocket sessions.")
        self._max_sessions = self.gauge("max_sessions", "Limit of concurrent transcriptions.")
        self._active_transcriptions = self.gauge(
            "active_transcriptions", "Open transcriptions, counted from the start of the upload."
        )
        self.draining = self.gauge("draining", "1 while the gateway stops and refuses new requests, else 0.")
        self.latency_s = self.histogram(
            "request_seconds", "Time from a request's headers to the end of its response.", SECONDS, "route"
        )

    def watch_sessions(self, limiter: SessionLimiter) -> None:
        self._max_sessions.set(limiter.max_sessions)
        self._active_transcriptions.set_function(lambda: limiter.num_sessions)

    def count_transcript(self, transcript: Transcription) -> None:
        self.count(transcript.stats or SpeculationStatistics(), transcript.duration_s)

    def count(self, statistics: SpeculationStatistics, audio_s: float) -> None:
        self._audio_s.inc(audio_s)
        for field, counter in self._counted.items():
            counter.inc(getattr(statistics, field))
