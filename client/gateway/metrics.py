"""What a gateway counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from client.transcript import Transcript

PREFIX = "specwhisper_gateway"
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
        self._audio_s = counter("audio_seconds", "Audio transcribed to its end.")
        self._drafted = counter("drafted_tokens", "Tokens sent to the target as candidates.")
        self._verified = counter("verified_tokens", "Candidates that the target put through a pass.")
        self._accepted = counter("accepted_tokens", "Candidates that it kept.")
        self._committed = counter("committed_tokens", "Tokens of the transcripts.")
        self._passes = counter("target_passes", "Forward passes of the target.")
        self._active = Gauge(
            f"{PREFIX}_active_requests", "Requests being answered, this one too.", registry=self._registry
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

    def count_error(self, error: BaseException) -> None:
        """Count an error by its class."""
        self._errors.labels(type(error).__name__).inc()

    def count_transcript(self, transcript: Transcript) -> None:
        """Count a finished transcription, and how its draft did."""
        statistics = transcript.statistics
        self._audio_s.inc(transcript.duration_s)
        self._drafted.inc(statistics.num_drafted)
        self._verified.inc(statistics.num_verified)
        self._accepted.inc(statistics.num_accepted)
        self._committed.inc(statistics.num_committed)
        self._passes.inc(statistics.num_passes)

    def write(self, accept: str) -> tuple[bytes, str]:
        """Give all figures and their media type, in the format that a scraper accepts."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type
