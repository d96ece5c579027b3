"""What a gateway counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder

from specwhisper.observe.metrics.registry import Registry
from specwhisper.rpc.session_limiter import SessionLimiter
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper_client.transcript import Transcript

# From a list of models to a long recording.
SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class GatewayMetrics(Registry):
    """Counters of one gateway; all names begin with ``specwhisper_gateway_``."""

    def __init__(self) -> None:
        super().__init__("specwhisper_gateway")
        ProcessCollector(registry=self.collected)
        self.tell_build(model="", dtype="", device="")  # its models run elsewhere
        self._requests = self.counter("requests", "Requests answered.", "route", "status")
        self._errors = self.counter("errors", "Requests that ended with an error.", "kind")
        self._audio_s = self.counter("audio_seconds", "Audio of transcriptions that have ended.")
        self._drafted = self.counter("drafted_tokens", "Tokens sent to the target as candidates.")
        self._verified = self.counter("verified_tokens", "Candidates that the target judged.")
        self._accepted = self.counter("accepted_tokens", "Candidates that it kept.")
        self._committed = self.counter(
            "committed_tokens", "Tokens that were committed; of live audio, those of every step."
        )
        self._passes = self.counter("target_passes", "Forward passes of the target.")
        self._active = self.gauge("active_requests", "Requests being answered, this one too.")
        self._sessions = self.counter("sessions", "WebSocket sessions that have ended.", "route", "code")
        self._active_sessions = self.gauge("active_sessions", "WebSocket sessions that are open.")
        self._max_sessions = self.gauge("max_sessions", "Transcriptions that there may be at once.")
        self._places_taken = self.gauge("places_taken", "Those that there are, from the upload on.")
        self._draining = self.gauge("draining", "Whether the gateway takes no new requests, since it stops.")
        self._latency_s = self.histogram(
            "request_seconds", "From a request's headers to the end of its response.", SECONDS, "route"
        )

    def watch_sessions(self, limiter: SessionLimiter) -> None:
        """Tell from now on how many places there are, and are taken."""
        self._max_sessions.set(limiter.max_sessions)
        self._places_taken.set_function(lambda: limiter.num_sessions)

    def watch_draining(self, read: Callable[[], bool]) -> None:
        """Tell from now on whether the gateway is stopping."""
        self._draining.set_function(read)

    def begin(self) -> None:
        """Count a request in."""
        self._active.inc()

    def end(self) -> None:
        """Count it out."""
        self._active.dec()

    def count_request(self, route: str, status: int, elapsed_s: float) -> None:
        """Count how a request was answered."""
        self._requests.labels(route, str(status)).inc()
        self._latency_s.labels(route).observe(elapsed_s)

    def begin_session(self) -> None:
        """Count a WebSocket in."""
        self._active_sessions.inc()

    def end_session(self, route: str, code: int) -> None:
        """Count it out, by its close code, or by the HTTP status that it was refused with."""
        self._active_sessions.dec()
        self._sessions.labels(route, str(code)).inc()

    def count_error(self, error: BaseException) -> None:
        """Count an error by its class."""
        self._errors.labels(type(error).__name__).inc()

    def count_transcript(self, transcript: Transcript) -> None:
        """Count a finished transcription, and how its draft did."""
        self.count(transcript.statistics, transcript.duration_s)

    def count(self, statistics: SpeculationStatistics, audio_s: float) -> None:
        """Count so much audio, and how the draft did over it."""
        self._audio_s.inc(audio_s)
        self._drafted.inc(statistics.num_drafted)
        self._verified.inc(statistics.num_verified)
        self._accepted.inc(statistics.num_accepted)
        self._committed.inc(statistics.num_committed)
        self._passes.inc(statistics.num_forwards)

    def write(self, accept: str) -> tuple[bytes, str]:
        """Give all figures and their media type, in the format that a scraper accepts."""
        encode, media_type = choose_encoder(accept)
        return encode(self.collected), media_type
