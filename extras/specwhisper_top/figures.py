"""Read servers' metrics as Prometheus does, and compute figures from them; locators list more servers."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from http.client import BadStatusLine, HTTPException, RemoteDisconnected
from math import inf
from time import time

from prometheus_client.parser import text_string_to_metric_families

from specwhisper.errors import SpecWhisperError
from specwhisper.observe.metrics import TARGETS_PATH
from specwhisper.rpc.addresses import split_address
from specwhisper.rpc.channels import Credentials, check_credentials
from specwhisper.rpc.tls import http_connection

TIMEOUT_S = 2.0
MAX_BYTES = 4 * 1024 * 1024  # a hundred times what a server exports
TARGET, DRAFT, GATEWAY = KINDS = ("target", "draft", "gateway")
LOCATOR = "locator"  # lists targets; has neither sessions nor tokens
SERVING, DRAINING, LOST = "serving", "draining", "lost"

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]  # by name and labels


@dataclass(frozen=True, slots=True)
class Reading:
    """The metrics of a server at one time.

    Attributes
    ----------
    at_s : seconds since 1970.
    error : why the server could not be read; empty if it could.
    """

    address: str
    at_s: float
    samples: Samples = field(default_factory=dict)
    error: str = ""


def read_all(addresses: Sequence[str], credentials: Credentials) -> list[Reading]:
    """Read all servers at once; a server that does not answer in time has an error."""
    with ThreadPoolExecutor(max(1, len(addresses))) as threads:
        return list(threads.map(partial(_read, credentials=credentials), addresses))


def check_addresses(addresses: Sequence[str], credentials: Credentials) -> None:
    """Refuse an invalid address, and a token that would be sent unencrypted."""
    for address in addresses:
        check_credentials(address, credentials)


def _read(address: str, credentials: Credentials) -> Reading:
    at_s = time()
    try:
        return Reading(address, at_s, parse(_fetch(address, "/metrics", credentials)))
    except (OSError, HTTPException, ValueError) as error:
        return Reading(address, at_s, error=_reason(error))


def find_targets(locator: str, credentials: Credentials) -> tuple[list[str], Reading | None]:
    """Return the metrics addresses that a locator lists, or none and the failed reading."""
    at_s = time()
    try:
        groups = json.loads(_fetch(locator, TARGETS_PATH, credentials))
        found = [str(address) for group in groups for address in group["targets"]]
        check_addresses(found, credentials)
        return found, None
    except (OSError, HTTPException, ValueError, LookupError, TypeError, SpecWhisperError) as error:
        return [], Reading(locator, at_s, error=_reason(error))


def parse(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def _fetch(address: str, path: str, credentials: Credentials) -> str:
    headers = {} if credentials.token is None else {"Authorization": f"Bearer {credentials.token}"}
    with closing(http_connection(*split_address(address), credentials.tls, TIMEOUT_S)) as connection:
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        if reply.status != HTTPStatus.OK:
            raise HTTPException(f"answers {reply.status} {reply.reason}")
        return reply.read(MAX_BYTES).decode()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer in {TIMEOUT_S:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "no server answers"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no encrypted connection: {error}"
    if isinstance(error, ConnectionResetError | RemoteDisconnected):
        return "closes the connection: does it need encryption?"
    if isinstance(error, BadStatusLine):
        return "does not speak HTTP: name the port of --metrics-port"
    if isinstance(error, ValueError | LookupError | TypeError):
        return "its answer is not metrics"
    return str(error) or type(error).__name__


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one server, or of several if ``address`` is empty.

    Attributes
    ----------
    state : serving, draining or lost; ``reason`` is why it is lost.
    sessions, capacity : open sessions, and most sessions.
    streams : seconds of audio per second.
    acceptance : share of verified candidates that were accepted.
    tokens_per_forward : mean of one session.
    sessions_per_forward, forward_s : means over forward passes.
    queue_s : 95th percentile of the wait for a forward pass.
    round_trip_s : median of heartbeats.
    latency_s : 95th percentile from live audio to text; without live sessions, to the first text.
    failed, resumed, failed_drafts, differences : numbers of sessions.
    """

    address: str
    kind: str
    state: str = SERVING
    reason: str = ""
    model: str = ""
    sessions: int = 0
    capacity: int | None = None
    streams: float | None = None
    tokens_per_s: float | None = None
    acceptance: float | None = None
    tokens_per_forward: float | None = None
    sessions_per_forward: float | None = None
    forward_s: float | None = None
    queue_s: float | None = None
    round_trip_s: float | None = None
    latency_s: float | None = None
    requests_per_s: float | None = None
    errors_per_s: float | None = None
    failed: int | None = None
    resumed: int | None = None
    failed_drafts: int | None = None
    differences: int | None = None


class _Counts:
    def __init__(self, kind: str, now: Samples, growth: Samples, elapsed_s: float) -> None:
        self._prefix = f"specwhisper_{kind}_"
        self._now = now
        self._growth = growth
        self._elapsed_s = elapsed_s

    def gauge(self, name: str) -> float | None:
        return self._now.get((self._prefix + name, frozenset()))

    def label(self, name: str, label: str) -> str:
        found = (dict(labels) for (each, labels) in self._now if each == self._prefix + name)
        return next(found, {}).get(label, "")

    def grown(self, name: str, **wanted: str) -> float | None:
        """Return a counter's increase, summed over all series with the given labels."""
        found = [
            value
            for key, value in self._growth.items()
            if key[0] == self._prefix + name and wanted.items() <= dict(key[1]).items()
        ]
        return sum(found) if found else None

    def number(self, name: str, **wanted: str) -> int | None:
        grown = self.grown(name, **wanted)
        return None if grown is None else round(grown)

    def rate(self, name: str) -> float | None:
        return _ratio(self.grown(name), self._elapsed_s)

    def ratio(self, name: str, to: str) -> float | None:
        return _ratio(self.grown(name), self.grown(to))

    def mean(self, name: str) -> float | None:
        return self.ratio(f"{name}_sum", f"{name}_count")

    def quantile(self, name: str, share: float) -> float | None:
        """Return a histogram's quantile, as PromQL estimates it."""
        name = f"{name}_bucket"
        bounds = {dict(labels)["le"] for (each, labels) in self._now if each == self._prefix + name}
        counts = [(float(bound), self.grown(name, le=bound) or 0.0) for bound in sorted(bounds, key=float)]
        return quantile(counts, share)


def quantile(counts: Sequence[tuple[float, float]], share: float) -> float | None:
    """Estimate a quantile from cumulative counts by upper bound.

    Values are assumed to be spread evenly within a bucket; those above the last bound count as that bound.
    """
    if not counts or not counts[-1][1]:
        return None
    wanted = share * counts[-1][1]
    below_bound = below = 0.0
    for bound, count in counts:
        if count >= wanted:
            if bound == inf:
                return below_bound
            return below_bound + (bound - below_bound) * (wanted - below) / (count - below)
        below_bound, below = bound, count
    return below_bound


def figures_of(now: Reading, before: Reading | None) -> list[Figures]:
    """Return the figures since an earlier reading, or the server's start: two for a draft with a target."""
    if now.error:
        return [Figures(now.address, "", LOST, now.error)]
    since_s = began_s(now) or now.at_s
    if before is not None and began_s(before) == began_s(now):
        since_s = before.at_s
    kinds = [kind for kind in KINDS if _has(now.samples, kind)]
    if not kinds and _has(now.samples, LOCATOR):
        return []
    if not kinds:
        return [Figures(now.address, "", LOST, "exports no metrics of specwhisper")]
    grown, elapsed_s = growth(now, before), now.at_s - since_s
    return [_figures(now.address, _Counts(kind, now.samples, grown, elapsed_s), kind) for kind in kinds]


def growth(now: Reading, before: Reading | None) -> Samples:
    """Return the increases of a server's counters; after a restart they begin at 0."""
    if before is None or began_s(before) != began_s(now):
        return now.samples
    return {
        key: value - earlier if value >= (earlier := before.samples.get(key, 0.0)) else value
        for key, value in now.samples.items()
    }


def began_s(reading: Reading) -> float | None:
    """Return when a server's process began, in seconds since 1970, if known."""
    return reading.samples.get(("process_start_time_seconds", frozenset()))


def total_of(
    kind: str, rows: Sequence[Figures], readings: Sequence[tuple[Reading, Reading | None]]
) -> Figures:
    """Return sums, and ratios of sums, from each server's last reading and the one before."""
    now = _added(each.samples for each, _ in readings)
    total = _figures("", _Counts(kind, now, _added(growth(*pair) for pair in readings), 0.0), kind)
    return replace(
        total,
        state=f"{len(rows)} servers",
        model="",
        streams=_sum(row.streams for row in rows),
        tokens_per_s=_sum(row.tokens_per_s for row in rows),
        requests_per_s=_sum(row.requests_per_s for row in rows),
        errors_per_s=_sum(row.errors_per_s for row in rows),
    )


def _figures(address: str, counts: _Counts, kind: str) -> Figures:
    gauges = (counts.gauge(name) for name in ("active_transcriptions", "active_sessions", "slots_in_use"))
    sessions = next((value for value in gauges if value is not None), 0.0)
    capacity = counts.gauge("slots") or counts.gauge("max_sessions")
    live_s = counts.quantile("final_latency_seconds", 0.95)
    return Figures(
        address,
        kind,
        DRAINING if counts.gauge("draining") else SERVING,
        model=counts.label("build_info", "model"),
        sessions=round(sessions),
        capacity=None if capacity is None else round(capacity),
        streams=counts.rate("audio_seconds_total"),
        tokens_per_s=counts.rate("committed_tokens_total"),
        acceptance=counts.ratio("accepted_tokens_total", "verified_tokens_total"),
        tokens_per_forward=counts.ratio("committed_tokens_total", "session_forward_passes_total"),
        sessions_per_forward=counts.mean("forward_pass_sessions"),
        forward_s=counts.mean("forward_pass_seconds"),
        queue_s=counts.quantile("queue_seconds", 0.95),
        round_trip_s=counts.quantile("round_trip_seconds", 0.5),
        latency_s=counts.quantile("first_text_seconds", 0.95) if live_s is None else live_s,
        requests_per_s=counts.rate("requests_total"),
        errors_per_s=counts.rate("errors_total"),
        failed=counts.number("sessions_total", outcome="failed"),
        resumed=counts.number("session_resumes_total"),
        failed_drafts=counts.number("failed_drafts_total"),
        differences=counts.number("parity_differences_total"),
    )


def _has(samples: Samples, kind: str) -> bool:
    return any(name.startswith(f"specwhisper_{kind}_") for name, _ in samples)


def _added(servers: Iterable[Samples]) -> Samples:
    total: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for samples in servers:
        for key, value in samples.items():
            total[key] = total.get(key, 0.0) + value
    return total


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole
