"""Points at which a server can be told to fail, so that tests meet every moment of a session.

    SPECWHISPER_FAILPOINTS=verify.before=kill@7,send.after=stop

Without the variable there is no trace of them: servers are put together without what would ask.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specwhisper.errors import InvalidRequest

VARIABLE = "SPECWHISPER_FAILPOINTS"
# Around a forward pass, what it appended being handed to its sessions, and what they are told being sent.
TARGET_POINTS = tuple(
    f"{what}.{when}" for what in ("verify", "commit", "send") for when in ("before", "after")
)
# Around a step of the draft model, an event of the target being received, and a response being sent.
DRAFT_POINTS = tuple(
    f"{what}.{when}" for what in ("draft", "receive", "reply") for when in ("before", "after")
)


class Fault(StrEnum):
    """What happens at a point."""

    KILL = "kill"  # SIGKILL: nothing is said to anybody
    STOP = "stop"  # SIGSTOP: until somebody sends SIGCONT
    RAISE = "raise"
    HANG = "hang"  # the thread that reaches the point never goes on


class FailpointReached(RuntimeError):
    """What a point raises that is told to; like any bug, it is in no table of errors."""


@dataclass(frozen=True, slots=True)
class Failpoint:
    """What happens, and at which hit of the point."""

    fault: Fault
    hit: int = 1


class Failpoints:
    """Counts how often each point is hit, from any thread, and fails when it is time; once each.

    Parameters
    ----------
    send_signal : sends one to this process.
    hang : blocks the thread that calls it.

    Attributes
    ----------
    num_hanging : threads that hang at a point.
    """

    def __init__(
        self,
        points: Mapping[str, Failpoint],
        send_signal: Callable[[int], None] = lambda number: os.kill(os.getpid(), number),
        hang: Callable[[], object] = lambda: threading.Event().wait(),
    ) -> None:
        self.points = dict(points)
        self.num_hanging = 0
        self._send_signal = send_signal
        self._hang = hang
        self._hits = dict.fromkeys(points, 0)
        self._lock = threading.Lock()

    def hit(self, point: str) -> None:
        """Pass a point."""
        failpoint = self.points.get(point)
        if failpoint is None:
            return
        with self._lock:
            self._hits[point] += 1
            is_due = self._hits[point] == failpoint.hit
        if not is_due:
            return
        if failpoint.fault is Fault.RAISE:
            raise FailpointReached(f"Failpoint {point} was told to raise at hit {failpoint.hit}.")
        if failpoint.fault is Fault.HANG:
            self.num_hanging += 1
            self._hang()
            self.num_hanging -= 1
            return
        self._send_signal(signal.SIGKILL if failpoint.fault is Fault.KILL else signal.SIGSTOP)


class FailingModel:
    """Wraps a model so that each of its forward passes hits ``POINT.before`` and ``POINT.after``."""

    def __init__(self, model: Any, failpoints: Failpoints, point: str) -> None:
        self._model = model
        self._failpoints = failpoints
        self._point = point

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def score(self, rows: Any) -> Any:
        """Run a forward pass of the model."""
        self._failpoints.hit(f"{self._point}.before")
        scores = self._model.score(rows)
        self._failpoints.hit(f"{self._point}.after")
        return scores


def read_failpoints(environment: Mapping[str, str], known: Collection[str]) -> Failpoints | None:
    """Read the variable; ``None`` where it is not set.

    Parameters
    ----------
    known : the points that this server has.
    """
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return None
    points: dict[str, Failpoint] = {}
    for part in text.split(","):
        point, failpoint = _failpoint(part.strip(), known)
        if point in points:
            raise InvalidRequest(f"{VARIABLE} names {point} twice: name each point once.")
        points[point] = failpoint
    return Failpoints(points)


def _failpoint(text: str, known: Collection[str]) -> tuple[str, Failpoint]:
    point, _, action = text.partition("=")
    fault, at, hit = action.partition("@")
    if point not in known or fault not in set(Fault) or (at and not (hit.isdecimal() and int(hit))):
        raise InvalidRequest(
            f"{VARIABLE} has '{text}': write POINT=ACTION or POINT=ACTION@HIT, with a point of "
            f"{', '.join(known)}, an action of {', '.join(Fault)} and a hit from 1 on."
        )
    return point, Failpoint(Fault(fault), int(hit or 1))
