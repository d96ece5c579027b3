"""A session is offered to one target after the other, each once, until one takes it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

from specwhisper.errors import GONE, RETRY_OTHER_TARGET, SpecWhisperError
from specwhisper_draft_server.link.choosing import Place

Opened = TypeVar("Opened")
Find = Callable[[Collection[str]], Awaitable[Place]]


@asynccontextmanager
async def opened_at_one(
    find: Find,
    open_at: Callable[[Place], AbstractAsyncContextManager[Opened]],
    *,
    avoid: str = "",
    place: Place | None = None,
) -> AsyncIterator[Opened]:
    """Open a session at the first target that takes it; raise when each was tried.

    Nothing waits here. Where one target was lost and the others refuse, the loss is raised: it may be over in
    a moment.

    Parameters
    ----------
    find : returns where there is room, at one of the given addresses only where there is no other.
    avoid : an address that is tried only where there is no other.
    place : where to begin.
    """
    tried: set[str] = set()
    refusal: SpecWhisperError | None = None  # the last one, or the first loss
    async with AsyncExitStack() as there:
        try:
            while True:
                place = place or await _next_place(find, avoid, tried, refusal)
                tried.add(place.address)
                try:
                    opened = await there.enter_async_context(open_at(place))
                    break
                except RETRY_OTHER_TARGET as error:
                    refusal = refusal if isinstance(refusal, GONE) else error
                    place = None
        finally:
            refusal = None  # an error refers to this frame: they would keep each other, and all that is here
        yield opened


async def _next_place(
    find: Find, avoid: str, tried: Collection[str], refusal: SpecWhisperError | None
) -> Place:
    """Return a place at an address that was not tried."""
    try:
        place = await find([address for address in (avoid, *tried) if address])
    except RETRY_OTHER_TARGET:
        if isinstance(refusal, GONE):
            raise refusal from None
        raise
    else:
        if refusal is not None and place.address in tried:
            raise refusal
        return place
    finally:
        refusal = None
