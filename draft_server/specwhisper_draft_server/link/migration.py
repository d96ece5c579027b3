"""Migration of a session away from a target that stops, or is slow.

Another target takes the session before it leaves.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Protocol, TypeVar

from specwhisper.errors import RETRY_ELSEWHERE, ServerDraining, SpecWhisperError
from specwhisper.rpc.failover import Failover
from specwhisper_draft_server.link.pace import Pace

logger = logging.getLogger(__name__)

CHECK_S = 1.0  # between two looks at a session's pace
Opened = TypeVar("Opened", covariant=True)


class LeftTarget(Protocol):
    """The target that a session may leave.

    ``going_away`` is set once it has announced that it stops.
    """

    address: str
    going_away: asyncio.Event


class OpenOther(Protocol[Opened]):
    """Opens a session at another target.

    It tries once, and raises an expected error if none takes it, or none that answers within ``within_s``.
    """

    async def __call__(self, within_s: float | None = None) -> Opened:
        """Open it."""


async def opened_elsewhere(
    open_other: OpenOther[Opened], left: LeftTarget, pace: Pace, *, session_id: str
) -> Opened:
    """Open a session at another target, once its own stops or is much slower.

    Parameters
    ----------
    pace : how fast the session's target answers.
    """
    log = {"session": session_id, "target": left.address}
    while not left.going_away.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECK_S):
                await left.going_away.wait()
        if not left.going_away.is_set() and pace.asks_others(monotonic()):
            with suppress(SpecWhisperError):  # it stays, and asks again later
                opened = await open_other(pace.worth_a_move_s)
                logger.warning("slow target left", extra=log | {"answer_s": round(pace.answer_s, 3)})
                return opened
    return await _opened_at_once(open_other, log)


async def _opened_at_once(open_other: OpenOther[Opened], log: dict[str, str]) -> Opened:
    """Open it as soon as another target takes it, for as long as the old one serves the session.

    All sessions of a target that stops migrate at once, so even the first try follows a random delay.
    """
    failover, is_logged = Failover(inf), False
    error: SpecWhisperError = ServerDraining(f"Target {log['target']} is stopping.")
    while True:
        await failover.wait(error)
        try:
            return await open_other()
        except SpecWhisperError as refusal:
            error = refusal
            if not (is_logged or isinstance(refusal, RETRY_ELSEWHERE)):
                is_logged = True
                logger.warning(
                    "cannot migrate", extra=log | {"error": f"{type(refusal).__name__}: {refusal}"}
                )
        except Exception:
            logger.exception("cannot migrate", extra=log)
            raise
