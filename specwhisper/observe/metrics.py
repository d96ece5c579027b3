"""Prometheus metrics: every server's, a target engine's, and the tokens of all sessions.

Each server has its own registry, so several fit into a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

from specwhisper import __version__
from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.errors import SpecWhisperError
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import (
    NS_PER_S,
    SAMPLE_RATE,
    SERVER_MODES,
    AudioChunk,
    Candidates,
    Commit,
    Mode,
    WindowOpened,
)
from specwhisper.wire.status import COMPLETE, OUTCOMES, outcome_of

TARGETS_PATH = "/targets"  # as Prometheus' HTTP discovery reads it


class Registry:
    """Makes metrics whose names have a prefix, in its own registry or in a shared one."""

    def __init__(self, prefix: str, collected: CollectorRegistry | None = None) -> None:
        self._prefix = prefix
        self.collected = collected or CollectorRegistry()

    def counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"{self._prefix}_{name}", meaning, labels, registry=self.collected)

    def gauge(self, name: str, meaning: str, read: Callable[[], float] | None = None) -> Gauge:
        """Make a gauge that is set, or that calls ``read`` at each scrape, in any thread."""
        gauge = Gauge(f"{self._prefix}_{name}", meaning, registry=self.collected)
        if read is not None:
            gauge.set_function(read)
        return gauge

    def histogram(self, name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"{self._prefix}_{name}", meaning, labels, registry=self.collected, buckets=buckets)

    def export_build(self, model: str, dtype: str, device: str) -> None:
        build = Info(f"{self._prefix}_build", "Version and model of this server.", registry=self.collected)
        build.info({"version": __version__, "model": model, "dtype": dtype, "device": device})


INTERNAL = "Internal"  # unexpected errors, which callers see without a reason


class ServerMetrics(Registry):
    """Metrics of one server: sessions and how they end, errors, draining.

    None has a label for a session or a caller.
    """

    def __init__(self, prefix: str, *, model: str, dtype: str, device: str) -> None:
        super().__init__(prefix)
        ProcessCollector(registry=self.collected)
        self.export_build(model, dtype, device)
        self._active = self.gauge("active_sessions", "Open sessions.")
        self._sessions = self.counter(
            "sessions",
            "Sessions that have ended: complete, cancelled by the caller, refused or failed.",
            "mode",
            "outcome",
        )
        for mode in SERVER_MODES:  # 0 rather than missing, so that rates see the first one
            for outcome in OUTCOMES:
                self._sessions.labels(mode, outcome)
        self._errors = self.counter("errors", "Calls that ended with an error, by class of error.", "kind")
        self._draining = self.gauge("draining", "1 while the server stops and refuses new calls, else 0.")

    @contextmanager
    def session(self, mode: Mode) -> Iterator[None]:
        self._active.inc()
        ended_by = None
        try:
            yield
        except BaseException as error:
            ended_by = error
            raise
        finally:
            self._active.dec()
            self.count_session(mode, ended_by)

    def count_session(self, mode: Mode, ended_by: BaseException | None) -> None:
        outcome = COMPLETE if ended_by is None else outcome_of(ended_by)
        self._sessions.labels(mode, outcome).inc()

    def count_error(self, error: BaseException) -> None:
        is_ours = isinstance(error, SpecWhisperError)
        self._errors.labels(type(error).__name__ if is_ours else INTERNAL).inc()

    def watch_draining(self, read: Callable[[], bool]) -> None:
        self._draining.set_function(read)


KEPT_CANDIDATES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32)

COUNTED = {
    "windows": (
        "num_windows",
        "Windows opened, each attempt; of live audio one for each of the target's texts.",
    ),
    "drafted_tokens": ("num_drafted", "Tokens sent to the target as candidates."),
    "verified_tokens": ("num_verified", "Draft candidates that the target verified."),
    "accepted_tokens": ("num_accepted", "Draft candidates that the target accepted."),
    "hinted_tokens": ("num_hinted", "Candidates from hints that the target verified."),
    "hinted_accepted_tokens": ("num_hinted_accepted", "Candidates from hints that the target accepted."),
    "self_decoded_tokens": ("num_self_decoded", "Tokens that the target decoded without a candidate."),
    "committed_tokens": (
        "num_committed",
        "Tokens that the target wrote, including those that did not become text.",
    ),
    "session_forward_passes": ("num_forwards", "Forward passes, counted once for each session in them."),
    "align_forward_passes": ("num_align_forwards", "Further forward passes, which only find word times."),
    "candidate_blocks": ("num_blocks", "Blocks of candidates sent."),
}
DRAFT_TIMES_NS = {
    "draft_seconds": ("draft_ns", "Time in the draft's steps."),
    "network_seconds": ("network_ns", "Network time of blocks and their answers."),
}


class TokenCounters:
    """Counters of tokens, candidates and forward passes.

    ``drafts``: whether the draft's times are known.
    """

    def __init__(self, registry: Registry, *, drafts: bool) -> None:
        times = DRAFT_TIMES_NS if drafts else {}
        self.counters = [
            (registry.counter(name, meaning), field, unit)
            for fields, unit in ((COUNTED, 1), (times, NS_PER_S))
            for name, (field, meaning) in fields.items()
        ]
        self.kept = registry.histogram(
            "forward_pass_accepted_tokens",
            "Draft candidates accepted per forward pass that verified some.",
            KEPT_CANDIDATES,
        )


class Tally:
    """Adds the growth of one session's totals to the counters."""

    def __init__(self, counters: TokenCounters) -> None:
        self._counters = counters
        self._totals = [0] * len(counters.counters)
        self._kept: list[int] = []

    def count(self, statistics: SpeculationStatistics) -> None:
        for index, (counter, field, unit) in enumerate(self._counters.counters):
            before, now = self._totals[index], getattr(statistics, field)
            if now > before:
                counter.inc((now - before) / unit)
                self._totals[index] = now
        kept = list(statistics.acceptance_histogram)
        for num_kept, (before, now) in enumerate(zip_longest(self._kept, kept, fillvalue=0)):
            for _ in range(now - before):
                self._counters.kept.observe(num_kept)
        self._kept = kept


# From a small model's forward pass to one of hundreds of tokens.
FORWARD_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2.5)
QUEUE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
ENCODE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
FORWARD_SESSIONS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)


class EngineMetrics:
    """Counters of one target's engine; all names begin with ``specwhisper_target_``."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._totals = SpeculationStatistics()  # over all sessions
        self._tally = Tally(TokenCounters(registry, drafts=False))
        self._audio_s = registry.counter(
            "audio_seconds", "Audio received, including audio that was sent again."
        )
        self._forward_s = registry.histogram(
            "forward_pass_seconds", "Time of a forward pass.", FORWARD_SECONDS
        )
        self._forward_pass_sessions = registry.histogram(
            "forward_pass_sessions", "Sessions that shared a forward pass.", FORWARD_SESSIONS
        )
        self._queue_s = registry.histogram(
            "queue_seconds", "Time that a session's work waits for its forward pass.", QUEUE_SECONDS
        )
        self._encode_s = registry.histogram("encode_seconds", "Time to encode a window.", ENCODE_SECONDS)

    def watch(self, engine: Any) -> None:
        """Export a :class:`Verifier`'s slots, and the audio that it holds."""
        gauge = self._registry.gauge
        gauge("slots", "Slots of the model; a session takes one.", lambda: engine.num_slots)
        gauge("slots_in_use", "Slots that sessions take.", lambda: engine.num_slots - engine.num_free_slots)
        gauge("held_audio_bytes", "Audio in memory that windows still need.", lambda: engine.held_audio_bytes)

    def on_message(self, message: object) -> None:
        if isinstance(message, AudioChunk):
            self._audio_s.inc(len(message.pcm) / (BYTES_PER_SAMPLE * SAMPLE_RATE))
        elif isinstance(message, Candidates):
            self._totals.observe(message)

    def observe(self, events: Sequence[tuple[str, object]]) -> None:
        """Count the events of one step, which ran one forward pass, or several smaller ones."""
        forwards: set[tuple[int, int]] = set()
        for _, event in events:
            if isinstance(event, WindowOpened):
                self._totals.observe(event)
            elif isinstance(event, Commit) and event.tokens:
                self._totals.observe(event)
                timing = event.timing
                self._queue_s.observe(timing.queue_ns / NS_PER_S)
                if timing.encode_ns:
                    self._encode_s.observe(timing.encode_ns / NS_PER_S)
                this_forward = (timing.forward_ns, timing.batch_size)
                if timing.batch_size == 1 or this_forward not in forwards:
                    forwards.add(this_forward)
                    self._forward_s.observe(timing.forward_ns / NS_PER_S)
                    self._forward_pass_sessions.observe(timing.batch_size)
        self._tally.count(self._totals)
