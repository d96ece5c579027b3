"""Where targets are: some are named, and those name others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any, TypeVar

from specwhisper.errors import GONE, ServerDraining, ServerFull, SpecWhisperError, TargetUnavailable
from specwhisper.wire.status import was_there
from specwhisper_draft_server.link.choosing import Place, choose

MAX_KNOWN = 64  # targets that others have told of
GRACE_S = 0.25  # for slower ones, once one has answered
HEDGE_S = 0.5  # for those that are named; behind it those they have told of are asked as well

Answer = TypeVar("Answer")


class Targets:
    """Finds targets, also while those are away that know where they are.

    Parameters
    ----------
    named : addresses of targets, or of locators that answer ``Locate`` for many.
    """

    def __init__(self, named: Sequence[str]) -> None:
        self.named = tuple(dict.fromkeys(named))
        self._opening: Counter[str] = Counter()
        self._known: dict[str, None] = {}  # whom others have told of, the newest last
        self._gone: set[str] = set()  # those of them that did not answer when they were asked last

    async def place(
        self, locate: Callable[[str], Coroutine[Any, Any, Place]], avoid: Collection[str] = ()
    ) -> Place:
        """Find a target that has room; at an address to ``avoid`` only where there is no other.

        Parameters
        ----------
        locate : asks at an address for a place, which may be elsewhere.

        Raises
        ------
        ServerFull
            where some that match answer, and none has room.
        TargetUnavailable
            where none of those answers.
        PairMismatch
            where all answer, and none is what the session needs.
        """
        answers = await self._ask(locate, GRACE_S)
        places = [answer for answer in answers.values() if isinstance(answer, Place)]
        if not places:
            raise _likeliest(answers.values())
        if any(isinstance(answers.get(address), Place) for address in self.named):
            self._forget_gone()  # while nobody who is named answers, they may come back before those do
        found = choose(places, self._opening, avoid)
        self._remember(found.address)
        return found

    @contextmanager
    def opening(self, address: str) -> Iterator[None]:
        """Count a session that is being opened at an address."""
        self._opening[address] += 1
        try:
            yield
        finally:
            self._opening[address] -= 1
            self._opening = +self._opening

    async def first(self, ask: Callable[[str], Coroutine[Any, Any, Answer]]) -> Answer:
        """Give the answer of whoever answers first; of others only where the named are away.

        The port of one that was told of may be another one's by now.
        """
        answers = await self._ask(ask, 0.0)
        for answer in answers.values():
            if not isinstance(answer, SpecWhisperError):
                return answer
        raise _likeliest(answers.values())

    def knows(self, address: str) -> bool:
        """Tell whether an address may be asked again."""
        return address in self.named or address in self._known

    def note_gone(self, address: str) -> None:
        """Note that a target is away, or has lost a session; it is forgotten unless it is named again."""
        if address in self._known:
            self._gone.add(address)

    async def _ask(
        self, ask: Callable[[str], Coroutine[Any, Any, Answer]], grace_s: float
    ) -> dict[str, Answer | SpecWhisperError]:
        """Collect answers and refusals by address.

        Those who are told of are asked where all who are named are away, or say nothing for a while. Nobody
        is awaited for longer than a grace behind the first answer.
        """
        clock = asyncio.get_running_loop().time
        asked: dict[str, asyncio.Future[Answer]] = {}
        others, ask_others_s, until_s = self._told_of, clock() + HEDGE_S, inf
        try:
            asked |= {address: asyncio.ensure_future(ask(address)) for address in self.named}
            while True:
                pending = [task for task in asked.values() if not task.done()]
                errors = [task.exception() for task in asked.values() if task.done()]
                if None in errors:
                    until_s = min(until_s, clock() + grace_s)
                elif others:
                    is_late = bool(pending) and clock() >= ask_others_s
                    if is_late or (not pending and all(isinstance(error, GONE) for error in errors)):
                        asked |= {address: asyncio.ensure_future(ask(address)) for address in others}
                        others = []
                        continue
                if not pending or clock() >= until_s:
                    break
                wait_s = min(until_s, ask_others_s if others else inf) - clock()
                await asyncio.wait(
                    pending,
                    timeout=None if wait_s == inf else max(0.0, wait_s),
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            for task in asked.values():
                task.cancel()  # those that are silent
            await asyncio.gather(*asked.values(), return_exceptions=True)
        answers: dict[str, Answer | SpecWhisperError] = {}
        for address, task in asked.items():
            if task.cancelled():
                continue
            error = task.exception()
            if error is None:
                answers[address] = task.result()
            elif isinstance(error, SpecWhisperError):
                answers[address] = error
            else:
                raise error
        return answers

    @property
    def _told_of(self) -> list[str]:
        return [address for address in reversed(self._known) if address not in self.named]

    def _remember(self, address: str) -> None:
        self._known.pop(address, None)
        self._gone.discard(address)
        self._known[address] = None
        while len(self._known) > MAX_KNOWN:
            self._forget(next(iter(self._known)))

    def _forget_gone(self) -> None:
        for address in list(self._gone):
            self._forget(address)

    def _forget(self, address: str) -> None:
        self._known.pop(address, None)
        self._gone.discard(address)


def _likeliest(answers: Iterable[object]) -> SpecWhisperError:
    """Choose one of many refusals: what passes soonest, and of those like it the first one.

    A target that was there a moment ago may be back before one that never answered; one that stops will not.
    """
    errors = [answer for answer in answers if isinstance(answer, SpecWhisperError)]
    full = [error for error in errors if isinstance(error, ServerFull)]
    away = [error for error in errors if isinstance(error, TargetUnavailable)]
    away.sort(key=was_there, reverse=True)
    errors.sort(key=lambda error: isinstance(error, ServerDraining))
    return [*full, *away, *errors, TargetUnavailable("No target is named.")][0]
