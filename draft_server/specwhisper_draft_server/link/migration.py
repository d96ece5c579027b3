"""Migration of a session away from a target that stops.

Another target takes the session before it leaves.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from specwhisper.errors import RETRY_ELSEWHERE, ServerDraining, SpecWhisperError
from specwhisper.rpc.failover import Failover

logger = logging.getLogger(__name__)

Opened = TypeVar("Opened")


async def opened_elsewhere(
    open_other: Callable[[], Awaitable[Opened]], *, session_id: str, target: str
) -> Opened:
    """Open a session at another target, as soon as one takes it.

    All sessions of a target that stops migrate at once, so even the first try follows a random delay.

    Parameters
    ----------
    open_other : tries once. An expected error is retried for as long as the old target serves the session.
    target : the address of the target that stops.
    """
    failover, is_logged = Failover(inf), False
    error: SpecWhisperError = ServerDraining(f"Target {target} is stopping.")
    log = {"session": session_id, "target": target}
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
