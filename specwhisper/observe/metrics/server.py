"""Metrics of every server: sessions and how they end, errors, draining."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import ProcessCollector

from specwhisper.errors import SpecWhisperError
from specwhisper.observe.metrics.registry import Registry
from specwhisper.types import SERVER_MODES, Mode
from specwhisper.wire.outcomes import COMPLETE, OUTCOMES, outcome_of

INTERNAL = "Internal"  # unexpected errors, which callers see without a reason


class ServerMetrics(Registry):
    """Metrics of one server; none has a label for a session or a caller.

    Parameters
    ----------
    prefix : prefix of every name.
    model, dtype, device : the model that the server runs.
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
