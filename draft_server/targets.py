"""Where targets are: some are named, and those tell of others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from specwhisper.errors import ServerDraining, ServerFull, SpecWhisperError, TargetUnavailable

MAX_KNOWN = 64  # targets that others have told of
GRACE_S = 0.25  # for slower ones, once one has answered

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Place:
    """A target that has room.

    Attributes
    ----------
    lease : the right to open a session there, where one is asked for.
    """

    address: str
    lease: str = ""
    free_slots: int = 0


class Targets:
    """Finds targets, also while those are away that know where they are.

    Parameters
    ----------
    named : addresses of targets, or of fronts that answer ``Locate`` for many.
    locate : asks at an address for a place, which may be elsewhere.
    """

    def __init__(self, named: Sequence[str], locate: Callable[[str], Coroutine[Any, Any, Place]]) -> None:
        self.named = tuple(dict.fromkeys(named))
        self._locate = locate
        self._known: dict[str, None] = {}  # whom others have told of, the newest last

    async def place(self, avoid: str = "") -> Place:
        """Find the emptiest target; one to ``avoid`` only where there is no other.

        Raises
        ------
        ServerFull
            where some answer and none has room.
        TargetUnavailable
            where none answers.
        """
        answers = await _answers(map(self._locate, self.named), GRACE_S)
        if all(isinstance(answer, TargetUnavailable | ServerDraining) for answer in answers):
            answers += await _answers(map(self._locate, self._told_of), GRACE_S)
        places = [answer for answer in answers if isinstance(answer, Place)]
        if not places:
            raise _likeliest(answers)
        others = [place for place in places if place.address != avoid] or places
        most = max(place.free_slots for place in others)
        found = random.choice([place for place in others if place.free_slots == most])
        self._remember(found.address)
        return found

    async def first(self, ask: Callable[[str], Coroutine[Any, Any, Answer]]) -> Answer:
        """Give the answer of whoever answers first; of others only where the named are away.

        The port of one that was told of may be another one's by now.
        """
        answers: list[Answer | SpecWhisperError] = []
        for addresses in (self.named, self._told_of):
            answers += await _answers(map(ask, addresses), 0.0)
            for answer in answers:
                if not isinstance(answer, SpecWhisperError):
                    return answer
        raise _likeliest(answers)

    @property
    def _told_of(self) -> list[str]:
        return [address for address in reversed(self._known) if address not in self.named]

    def _remember(self, address: str) -> None:
        self._known.pop(address, None)
        self._known[address] = None
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]


async def _answers(
    asked: Iterable[Coroutine[Any, Any, Answer]], grace_s: float
) -> list[Answer | SpecWhisperError]:
    """Collect answers and refusals; nobody is awaited for longer than a grace behind the first answer."""
    tasks = [asyncio.ensure_future(each) for each in asked]
    pending: set[asyncio.Future[Answer]] = set(tasks)
    until_s = None
    clock = asyncio.get_running_loop().time
    try:
        while pending:
            rest_s = None if until_s is None else max(0.0, until_s - clock())
            done, pending = await asyncio.wait(pending, timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
            if until_s is None and any(task.exception() is None for task in done):
                until_s = clock() + grace_s
            elif not done:
                break
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    answers: list[Answer | SpecWhisperError] = []
    for task in tasks:
        if task.cancelled():
            continue
        error = task.exception()
        if error is None:
            answers.append(task.result())
        elif isinstance(error, SpecWhisperError):
            answers.append(error)
        else:
            raise error
    return answers


def _likeliest(answers: Sequence[object]) -> SpecWhisperError:
    """Choose what to say of many refusals: that there is no room, or else what the first one said."""
    errors = [answer for answer in answers if isinstance(answer, SpecWhisperError)]
    full = [error for error in errors if isinstance(error, ServerFull)]
    return [*full, *errors, TargetUnavailable("No target is named.")][0]
