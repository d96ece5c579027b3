"""Offer a session to one target after another, each once, until one takes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

from specwhisper.errors import GONE, RETRY_OTHER_TARGET, SpecWhisperError
from specwhisper_draft_server.link.choosing import TargetOffer

Opened = TypeVar("Opened")
Find = Callable[[Collection[str]], Awaitable[TargetOffer]]


@asynccontextmanager
async def opened_at_one(
    find: Find,
    open_at: Callable[[TargetOffer], AbstractAsyncContextManager[Opened]],
    *,
    avoid: str = "",
    offer: TargetOffer | None = None,
) -> AsyncIterator[Opened]:
    """Open a session at the first target that takes it; raise after each was tried.

    This does not wait between tries. If one target was lost and the others refuse, the loss is raised: that
    target may be back in a moment.

    Parameters
    ----------
    find : returns a target with a free slot, at one of the given addresses only if there is no other.
    open_at : opens the session at a target.
    avoid : an address that is tried only if there is no other.
    offer : the target to try first.
    """
    tried: set[str] = set()
    refusal: SpecWhisperError | None = None  # the last one, or the first loss
    async with AsyncExitStack() as stack:
        try:
            while True:
                offer = offer or await _next_offer(find, avoid, tried, refusal)
                tried.add(offer.address)
                try:
                    opened = await stack.enter_async_context(open_at(offer))
                    break
                except RETRY_OTHER_TARGET as error:
                    refusal = refusal if isinstance(refusal, GONE) else error
                    offer = None
        finally:
            refusal = None  # its traceback refers to this frame: the cycle would keep everything in it alive
        yield opened


async def _next_offer(
    find: Find, avoid: str, tried: Collection[str], refusal: SpecWhisperError | None
) -> TargetOffer:
    """Return a target that was not tried."""
    try:
        offer = await find([address for address in (avoid, *tried) if address])
    except RETRY_OTHER_TARGET:
        if isinstance(refusal, GONE):
            raise refusal from None
        raise
    else:
        if refusal is not None and offer.address in tried:
            raise refusal
        return offer
    finally:
        refusal = None
