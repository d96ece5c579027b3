"""The known targets, some configured, others named by locators; when a session leaves a slow one."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import mean
from typing import Any, TypeVar

from specwhisper.errors import GONE, ServerDraining, ServerFull, SpecWhisperError, TargetUnavailable
from specwhisper.types import NS_PER_S, Timing
from specwhisper.wire.status import was_there

MAX_DISCOVERED = 64  # targets that locators have named
GRACE_S = 0.25  # that slower servers get after the first answer
STANDBY_GRACE_S = 2.0  # that targets in a long forward pass get before a standby takes a session instead
HEDGE_S = 0.5  # that configured servers get before discovered targets are asked as well
FIRST_S = 5.0  # shortest time on a target before others are asked; doubled each time that they are
MAX_STAY_S = 240.0
MIN_ANSWERS, MAX_ANSWERS = 4, 8  # a pace is judged by several, since a single one may be slow
RATIO, SLOW_S = 3.0, 0.1  # by which factor and how many seconds a move must shorten answers
REGAINED_AFTER = 10  # answers that must save the cost of a move, which is encoding the window again

Answer = TypeVar("Answer")
Draw = Callable[[Sequence[int]], int]  # returns a random index, by weights


@dataclass(frozen=True, slots=True)
class TargetOffer:
    """A target that has a free slot for a session.

    Attributes
    ----------
    address : where the target listens, as HOST:PORT.
    lease : needed to open the session; empty if the target requires none.
    free_slots : sessions that the target can still take.
    is_standby : whether to use it only if another target is lost.
    """

    address: str
    lease: str = ""
    free_slots: int = 0
    is_standby: bool = False


def draw(weights: Sequence[int]) -> int:
    return random.choices(range(len(weights)), weights)[0]


def choose(
    offers: Sequence[TargetOffer],
    opening: Mapping[str, int],
    avoid: Collection[str] = (),
    draw: Draw = draw,
) -> TargetOffer:
    """Return one of the offers, at random in proportion to free slots.

    Several draft servers see the same numbers; without chance, all would choose the same target.

    Parameters
    ----------
    opening : sessions that this server is opening, by address; ``free_slots`` may not count them yet.
    avoid : addresses to choose last.
    """
    offers = [offer for offer in offers if offer.address not in avoid] or offers
    weights = [max(0, offer.free_slots - opening.get(offer.address, 0)) for offer in offers]
    if not any(weights):  # free_slots may already count them, so each is worth an attempt
        weights = [max(1, offer.free_slots) for offer in offers]
    return offers[draw(weights)]


class Targets:
    """Finds targets, even while the locators that name them are down.

    ``configured``: addresses of targets, or of locators that answer ``Locate`` for many.
    """

    def __init__(self, configured: Sequence[str]) -> None:
        self.configured = tuple(dict.fromkeys(configured))
        self._opening: Counter[str] = Counter()
        self._discovered: dict[str, None] = {}  # addresses that locators have named, the newest last

    async def find(
        self, locate: Callable[[str], Coroutine[Any, Any, TargetOffer]], avoid: Collection[str] = ()
    ) -> TargetOffer:
        """Return a target with a free slot.

        Parameters
        ----------
        locate : asks the server at an address for a target, which may be another server.
        avoid : addresses to return last.
        """
        answers = await self._ask(locate, GRACE_S)
        if _has_only_standbys(answers) and self._silent(answers) - {*avoid}:
            answers = await self._ask(locate, STANDBY_GRACE_S)
        offers = self._usable_offers(answers)
        if not offers:
            raise _most_promising(answers.values())
        found = choose(offers, self._opening, avoid)
        self._remember(found.address)
        return found

    def _usable_offers(self, answers: Mapping[str, TargetOffer | SpecWhisperError]) -> list[TargetOffer]:
        """Return the offers; those of standbys only if a target is lost or no other offer exists."""
        offers = [answer for answer in answers.values() if isinstance(answer, TargetOffer)]
        is_lost = any(isinstance(answer, GONE) for answer in answers.values())
        if _has_only_standbys(answers):  # a target that doesn't answer is lost, too
            is_lost = is_lost or bool(self._silent(answers)) or len(offers) == len(answers)
        return [offer for offer in offers if is_lost or not offer.is_standby]

    def _silent(self, answers: Collection[str]) -> set[str]:
        return {*self.configured} - {*answers}

    @contextmanager
    def opening(self, address: str) -> Iterator[None]:
        """Count a session that is being opened at an address while the body runs."""
        self._opening[address] += 1
        try:
            yield
        finally:
            self._opening[address] -= 1
            self._opening = +self._opening

    async def first(self, ask: Callable[[str], Coroutine[Any, Any, Answer]]) -> Answer:
        """Return the first answer of a server.

        Discovered targets are asked only if no configured server answers, since another program may have
        their ports by now.
        """
        answers = await self._ask(ask, 0.0)
        for answer in answers.values():
            if not isinstance(answer, SpecWhisperError):
                return answer
        raise _most_promising(answers.values())

    async def _ask(
        self, ask: Callable[[str], Coroutine[Any, Any, Answer]], grace_s: float
    ) -> dict[str, Answer | SpecWhisperError]:
        """Return answers and refusals by address.

        Discovered targets are asked if all configured servers are down, or none has answered for
        :data:`HEDGE_S`. Slower servers get ``grace_s`` seconds after the first answer.
        """
        asked = {address: asyncio.ensure_future(ask(address)) for address in self.configured}
        others = [address for address in reversed(self._discovered) if address not in self.configured]
        try:
            has_answer = await _one_succeeds(asked.values(), HEDGE_S if others else None)
            errors = [task.exception() for task in asked.values() if task.done()]
            are_down = len(errors) < len(asked) or all(isinstance(error, GONE) for error in errors)
            if not has_answer and are_down:
                asked |= {address: asyncio.ensure_future(ask(address)) for address in others}
                has_answer = await _one_succeeds(asked.values())
            if has_answer:
                await asyncio.wait(asked.values(), timeout=grace_s)
        finally:
            for task in asked.values():
                task.cancel()
            results = await asyncio.gather(*asked.values(), return_exceptions=True)
        answers: dict[str, Answer | SpecWhisperError] = {}
        for address, result in zip(asked, results, strict=True):
            if isinstance(result, SpecWhisperError) or not isinstance(result, BaseException):
                answers[address] = result
            elif not isinstance(result, asyncio.CancelledError):
                raise result
        return answers

    def _remember(self, address: str) -> None:
        self._discovered.pop(address, None)
        self._discovered[address] = None
        while len(self._discovered) > MAX_DISCOVERED:
            del self._discovered[next(iter(self._discovered))]


async def _one_succeeds(tasks: Iterable[asyncio.Future[Any]], within_s: float | None = None) -> bool:
    """Wait until a task has succeeded, all have failed, or the time is over."""
    for task in asyncio.as_completed(tasks, timeout=within_s):
        with suppress(Exception):
            await task
            return True
    return False


def _has_only_standbys(answers: Mapping[str, object]) -> bool:
    offers = [answer for answer in answers.values() if isinstance(answer, TargetOffer)]
    return bool(offers) and all(offer.is_standby for offer in offers)


def _most_promising(answers: Iterable[object]) -> SpecWhisperError:
    """Return the refusal that is likely to end soonest; the first one of several.

    A target that has just answered may be back before one that never did. One that stops will not be back.
    """
    errors = [answer for answer in answers if isinstance(answer, SpecWhisperError)]
    full = [error for error in errors if isinstance(error, ServerFull)]
    away = [error for error in errors if isinstance(error, TargetUnavailable)]
    away.sort(key=was_there, reverse=True)
    errors.sort(key=lambda error: isinstance(error, ServerDraining))
    return [*full, *away, *errors, TargetUnavailable("No target is configured: set --target.")][0]


class Pace:
    """Decides when a session leaves a slow target, by its answers and others' offers; pure.

    A session cannot go back and forth: it stays for a while after each move, and longer each time.

    ``draw``: returns a random number from 0 to 1, so that sessions that began together don't move
    together.
    """

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._answers_s: deque[float] = deque(maxlen=MAX_ANSWERS)
        self._encode_s = 0.0
        self._stay_s = FIRST_S
        self._ask_s = 0.0
        self._draw = draw

    @property
    def answer_s(self) -> float:
        """Mean time of the target's last answers without the slowest; 0 while there are few."""
        return mean(sorted(self._answers_s)[:-1]) if len(self._answers_s) >= MIN_ANSWERS else 0.0

    def begin(self, now_s: float) -> None:
        self._answers_s.clear()
        self._ask_s = now_s + self._stay_s * (1 + self._draw())

    def observe(self, timing: Timing) -> None:
        """Add the time of a target's answer, without the network."""
        if timing.forward_ns:
            self._answers_s.append((timing.queue_ns + timing.forward_ns) / NS_PER_S)
            self._encode_s = timing.encode_ns / NS_PER_S or self._encode_s

    def asks_others(self, now_s: float) -> bool:
        """Return whether the target is slow and others should be asked now."""
        if now_s < self._ask_s or self.answer_s < SLOW_S:
            return False
        self._stay_s = min(2 * self._stay_s, MAX_STAY_S)
        self._ask_s = now_s + self._stay_s * (1 + self._draw())
        return True

    @property
    def worth_a_move_s(self) -> float:
        """Longest answer time of another target for which a move pays.

        The other target is assumed to encode as much faster as it answers.
        """
        if not self.answer_s:
            return 0.0
        num_encoding = self._encode_s / self.answer_s  # answers in the time of an encoding, on any target
        return min((self.answer_s - SLOW_S) / RATIO, self.answer_s / (1 + num_encoding / REGAINED_AFTER))
