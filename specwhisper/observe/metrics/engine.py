"""Metrics of a target's engine, computed from its sessions' events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.observe.metrics.registry import Registry
from specwhisper.observe.metrics.tokens import Tally, TokenCounters
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import NS_PER_S, SAMPLE_RATE, AudioChunk, Candidates, Commit, WindowOpened

# From a small model's forward pass to one of hundreds of tokens.
FORWARD_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2.5)
QUEUE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
ENCODE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
FORWARD_SESSIONS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)


class Slotted(Protocol):
    @property
    def num_slots(self) -> int: ...

    @property
    def num_free_slots(self) -> int: ...

    @property
    def held_audio_bytes(self) -> int: ...


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
            "queue_seconds",
            "Time that a session's work waits for its forward pass.",
            QUEUE_SECONDS,
        )
        self._encode_s = registry.histogram("encode_seconds", "Time to encode a window.", ENCODE_SECONDS)

    def watch(self, engine: Slotted) -> None:
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
        """Count the events of one step.

        One forward pass, or the parts in which it was repeated.
        """
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
