"""A span for each window of a session, from its opening to its last commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specwhisper.observe.tracing import tracer
from specwhisper.types import Commit, WindowOpened

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class WindowSpans:
    """Traces the windows of one session."""

    def __init__(self) -> None:
        self._span: Span | None = None
        self._totals: dict[str, float] = {}

    @property
    def are_traced(self) -> bool:
        return tracer() is not None

    def on_event(self, event: object) -> None:
        if (active := tracer()) is None:
            return
        if isinstance(event, WindowOpened):
            self.close()
            window = event.window
            facts = {"window": window.id, "start_frame": window.start_frame, "frames": window.num_frames}
            attributes = {f"specwhisper.{key}": value for key, value in facts.items()}
            self._span, self._totals = active.start_span("window", attributes=attributes), {}
        elif isinstance(event, Commit) and self._span is not None and event.tokens:
            self._count(event)
            if event.is_final:
                self.close()

    def close(self) -> None:
        if self._span is not None:
            self._span.set_attributes({f"specwhisper.{key}": n for key, n in self._totals.items()})
            self._span.end()
            self._span = None

    def _count(self, commit: Commit) -> None:
        for name, number in (
            ("tokens", len(commit.tokens)),
            ("forward_passes", 1),
            ("verified_tokens", commit.num_drafted_verified),
            ("accepted_tokens", commit.num_drafted_accepted),
            ("queue_s", commit.timing.queue_ns / 1e9),
            ("forward_s", commit.timing.forward_ns / 1e9),
            ("encode_s", commit.timing.encode_ns / 1e9),
        ):
            self._totals[name] = self._totals.get(name, 0) + number
