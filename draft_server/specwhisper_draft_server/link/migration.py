"""Sessions whose target stops: another one has taken them before they leave."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

from specwhisper.errors import RETRY_ELSEWHERE, ServerDraining, SpecWhisperError
from specwhisper.rpc.backoff import Backoff

logger = logging.getLogger(__name__)

Opened = TypeVar("Opened")


async def opened_elsewhere(
    open_other: Callable[[], Awaitable[Opened]], *, session_id: str, target: str
) -> Opened:
    """Open a session at another target, as soon as one takes it.

    Every session of a target that stops comes at once: already the first try waits a moment, at random.

    Parameters
    ----------
    open_other : tries once. What goes wrong there is tried again, for as long as the target still serves.
    target : the address of the one that stops.
    """
    backoff, is_sent = Backoff(inf), False
    error: SpecWhisperError = ServerDraining(f"Target {target} is stopping.")
    log = {"session": session_id, "target": target}
    while True:
        await backoff.wait(error)
        try:
            return await open_other()
        except SpecWhisperError as refusal:
            error = refusal
            if not (is_sent or isinstance(refusal, RETRY_ELSEWHERE)):
                is_sent = True
                logger.warning("cannot leave", extra=log | {"error": f"{type(refusal).__name__}: {refusal}"})
        except Exception:
            logger.exception("cannot leave", extra=log)
            raise
