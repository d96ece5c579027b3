"""What a gateway counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.exposition import choose_encoder

from client.transcript import Transcript
from specwhisper.errors import InvalidRequest
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.wire.addresses import join_address

PREFIX = "specwhisper_gateway"
METRICS_HOST = "127.0.0.1"
# From a list of models to a long recording.
SECONDS = (
    0.01,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    300,
)


class Metrics:
    """Counters of one gateway; it has a registry of its own, so that several fit into one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"{PREFIX}_{name}", meaning, labels, registry=self._registry)

        self._requests = counter("requests", "Requests answered.", "route", "status")
        self._errors = counter("errors", "Requests that ended with an error.", "kind")
        self._audio_s = counter("audio_seconds", "Audio of transcriptions that have ended.")
        self._drafted = counter("drafted_tokens", "Tokens sent to the target as candidates.")
        self._verified = counter("verified_tokens", "Candidates that the target judged.")
        self._accepted = counter("accepted_tokens", "Candidates that it kept.")
        self._committed = counter(
            "committed_tokens", "Tokens that were committed; of live audio, those of every step."
        )
        self._passes = counter("target_passes", "Forward passes of the target.")
        self._active = Gauge(
            f"{PREFIX}_active_requests", "Requests being answered, this one too.", registry=self._registry
        )
        self._sessions = counter("sessions", "WebSocket sessions that have ended.", "route", "code")
        self._active_sessions = Gauge(
            f"{PREFIX}_active_sessions", "WebSocket sessions that are open.", registry=self._registry
        )
        self._latency_s = Histogram(
            f"{PREFIX}_request_seconds",
            "From a request's headers to the end of its response.",
            ["route"],
            registry=self._registry,
            buckets=SECONDS,
        )

    def begin(self) -> None:
        """Count a request in."""
        self._active.inc()

    def end(self, route: str, status: int, elapsed_s: float) -> None:
        """Count it out."""
        self._active.dec()
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
        self._passes.inc(statistics.num_passes)

    @contextmanager
    def served(self, port: int) -> Iterator[str]:
        """Serve all figures to this machine, by threads of their own; give the address."""
        try:
            server, thread = start_http_server(port, METRICS_HOST, self._registry)
        except OSError as error:
            raise InvalidRequest(
                f"Cannot serve metrics on {join_address(METRICS_HOST, port)}; is the port taken?"
            ) from error
        try:
            yield join_address(METRICS_HOST, server.server_port)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def write(self, accept: str) -> tuple[bytes, str]:
        """Give all figures and their media type, in the format that a scraper accepts."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type
