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

from specwhisper.errors import InvalidRequest

VARIABLE = "SPECWHISPER_FAILPOINTS"
# Around a forward pass, what it appended being handed to its sessions, and what they are told being sent.
TARGET_POINTS = tuple(
    f"{what}.{when}" for what in ("verify", "commit", "send") for when in ("before", "after")
)
# Around what a target says being taken in, and what the client is told being sent.
DRAFT_POINTS = tuple(f"{what}.{when}" for what in ("receive", "reply") for when in ("before", "after"))


class Fault(StrEnum):
    """What happens at a point."""

    KILL = "kill"  # SIGKILL: nothing is said to anybody
    STOP = "stop"  # SIGSTOP: until somebody sends SIGCONT
    RAISE = "raise"


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
    """

    def __init__(
        self,
        points: Mapping[str, Failpoint],
        send_signal: Callable[[int], None] = lambda number: os.kill(os.getpid(), number),
    ) -> None:
        self.points = dict(points)
        self._send_signal = send_signal
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
        self._send_signal(signal.SIGKILL if failpoint.fault is Fault.KILL else signal.SIGSTOP)


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
