"""Failpoints: named points at which tests make a server fail.

SPECWHISPER_FAILPOINTS=verify.before=kill@7,send.after=stop
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from specwhisper.errors import InvalidRequest
from specwhisper.types import Commit

VARIABLE = "SPECWHISPER_FAILPOINTS"


def _around(*steps: str) -> tuple[str, ...]:
    return tuple(f"{step}.{when}" for step in steps for when in ("before", "after"))


# Around a forward pass, the delivery of a commit to its session, and the sending of a window or commit.
TARGET_POINTS = _around("verify", "commit", "send")
# Around a step of the draft model, the receipt of a target's event, and the sending of a response.
DRAFT_POINTS = _around("draft", "receive", "reply")
POINTS = {"target": TARGET_POINTS, "draft": DRAFT_POINTS}


class Fault(StrEnum):
    """An action at a failpoint."""

    KILL = "kill"  # SIGKILL
    STOP = "stop"  # SIGSTOP, until SIGCONT
    RAISE = "raise"  # FailpointReached
    HANG = "hang"  # the thread that reaches the point blocks forever


class FailpointReached(RuntimeError):
    """Raised by :attr:`Fault.RAISE`; like a bug, it has no status of its own."""


@dataclass(frozen=True, slots=True)
class Failpoint:
    """A fault, and the hit of its point at which it happens, counted from 1."""

    fault: Fault
    hit: int = 1


class Failpoints:
    """Counts the hits of each point, from any thread, and fails once at each.

    ``points``: faults by the name of their point.
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
        """Count a hit of a point, and fail if it is due."""
        failpoint = self.points.get(point)
        if failpoint is None:
            return
        with self._lock:
            self._hits[point] += 1
            is_due = self._hits[point] == failpoint.hit
        if not is_due:
            return
        if failpoint.fault is Fault.RAISE:
            raise FailpointReached(f"Failpoint {point} raises at hit {failpoint.hit}.")
        if failpoint.fault is Fault.HANG:
            self.num_hanging += 1
            self._hang()
            self.num_hanging -= 1
            return
        self._send_signal(signal.SIGKILL if failpoint.fault is Fault.KILL else signal.SIGSTOP)

    def wrap_model(self, model: Any, step: str) -> Any:
        """Return a model whose forward passes hit ``STEP.before`` and ``STEP.after``."""

        def score(rows: Any) -> Any:
            self.hit(f"{step}.before")
            scores = model.score(rows)
            self.hit(f"{step}.after")
            return scores

        return _Wrapped(model, score=score)

    def wrap_transcriber(self, transcriber: Any) -> Any:
        """Return a transcriber whose target streams hit ``receive``."""

        @asynccontextmanager
        async def open_(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            async with transcriber.open(*args, **kwargs) as stream:
                yield _Wrapped(stream, events=self._around(stream.events, "receive"))

        return _Wrapped(transcriber, open=open_)

    def install_in_target(self, service: Any, thread: Any) -> None:
        """Let a target's service hit ``send``, and its engine's thread ``commit``."""
        deliver = thread._deliver

        def fail_commits(events: Sequence[tuple[str, object]]) -> None:
            if not any(isinstance(event, Commit) for _, event in events):
                deliver(events)
                return
            try:
                self.hit("commit.before")
                deliver(events)
                self.hit("commit.after")
            except FailpointReached as reached:
                thread.fail_sessions(reached)  # as after a bug of the engine

        thread._deliver = fail_commits
        service.Share = self._around(service.Share, "send", lambda response: bool(response.events))

    def install_in_draft(self, service: Any) -> None:
        """Let a draft server's service hit ``reply``."""
        service.transcribe = self._around(service.transcribe, "reply")

    def _around(
        self,
        respond: Callable[..., AsyncGenerator[Any]],
        step: str,
        is_counted: Callable[[Any], bool] = lambda _: True,
    ) -> Callable[..., AsyncGenerator[Any]]:
        """Return a generator function that hits points around each item."""

        async def failing(*args: Any) -> AsyncGenerator[Any]:
            async with aclosing(respond(*args)) as items:
                async for item in items:
                    if not is_counted(item):
                        yield item
                        continue
                    self.hit(f"{step}.before")
                    yield item
                    self.hit(f"{step}.after")

        return failing


class _Wrapped:
    """Stands for an object, some of whose methods are replaced."""

    def __init__(self, inner: Any, **methods: Callable[..., Any]) -> None:
        vars(self).update(methods, _inner=inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def read_failpoints(environment: Mapping[str, str], server: str) -> Failpoints | None:
    """Return the failpoints of a server, "target" or "draft"; ``None`` if the variable names none."""
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return None
    points: dict[str, Failpoint] = {}
    for part in text.split(","):
        point, failpoint = _failpoint(part.strip(), POINTS[server])
        if point in points:
            raise InvalidRequest(f"{VARIABLE} names {point} twice: name each point once.")
        points[point] = failpoint
    return Failpoints(points)


def _failpoint(text: str, known: Collection[str]) -> tuple[str, Failpoint]:
    point, _, action = text.partition("=")
    fault, at, hit = action.partition("@")
    if point not in known or fault not in set(Fault) or (at and not (hit.isdecimal() and int(hit))):
        raise InvalidRequest(
            f"{VARIABLE} has '{text}': write POINT=FAULT or POINT=FAULT@HIT, with a point of "
            f"{', '.join(known)}, a fault of {', '.join(Fault)} and a hit, counted from 1."
        )
    return point, Failpoint(Fault(fault), int(hit or 1))
