"""What every server counts: its sessions and how they end, errors, and that it stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import ProcessCollector

from specwhisper.errors import SpecWhisperError
from specwhisper.observe.metrics.registry import Registry
from specwhisper.types import Mode
from specwhisper.wire.outcomes import COMPLETE, OUTCOMES, outcome_of

MODES = [mode for mode in Mode if mode is not Mode.ONE_PROCESS]
INTERNAL = "Internal"  # the class of errors that no caller is told of


class ServerMetrics(Registry):
    """Counters of one server; sessions have no names in them.

    Parameters
    ----------
    prefix : what every name begins with.
    model, dtype, device : what the server runs.
    """

    def __init__(self, prefix: str, *, model: str, dtype: str, device: str) -> None:
        super().__init__(prefix)
        ProcessCollector(registry=self.collected)
        self.tell_build(model, dtype, device)
        self._active = self.gauge("active_sessions", "Sessions that are open.")
        self._sessions = self.counter(
            "sessions",
            "Sessions that have ended: complete, cancelled by the caller, refused or failed.",
            "mode",
            "outcome",
        )
        for mode in MODES:  # what never happened is 0, not missing: rates see the first one
            for outcome in OUTCOMES:
                self._sessions.labels(mode, outcome)
        self._errors = self.counter("errors", "Calls that ended with an error, by its class.", "kind")
        self._draining = self.gauge("draining", "Whether the server takes no new calls, since it stops.")

    @contextmanager
    def session(self, mode: Mode) -> Iterator[None]:
        """Count a session in and out."""
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
        """Count a session that has ended, or that never began."""
        outcome = COMPLETE if ended_by is None else outcome_of(ended_by)
        self._sessions.labels(mode, outcome).inc()

    def count_error(self, error: BaseException) -> None:
        """Count a call that ended with an error."""
        is_ours = isinstance(error, SpecWhisperError)
        self._errors.labels(type(error).__name__ if is_ours else INTERNAL).inc()

    def watch_draining(self, read: Callable[[], bool]) -> None:
        """Tell from now on whether a server is stopping."""
        self._draining.set_function(read)
