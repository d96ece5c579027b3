"""A session is offered to one target after the other."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from weakref import WeakSet

import pytest

from specwhisper.errors import InvalidRequest, PairMismatch, ServerDraining, ServerFull, TargetUnavailable
from specwhisper_draft_server.link.choosing import TargetOffer
from specwhisper_draft_server.link.opening import opened_at_one

FULL, MISMATCH = ServerFull("No."), PairMismatch("Other weights.")
LOST, STOPS = TargetUnavailable("It is gone."), ServerDraining("It stops.")


class World:
    """What each target answers to who opens a session; ``None`` takes it.

    Parameters
    ----------
    refusal : what is said to who looks for another place, once all that are not to be avoided were named.
    """

    def __init__(self, refusal: Exception | None = None, **targets: Exception | None) -> None:
        self._refusal = refusal
        self._targets = targets
        self.tried: list[str] = []
        self.num_asked = 0

    async def find(self, avoid: Collection[str]) -> TargetOffer:
        self.num_asked += 1
        others = [address for address in self._targets if address not in avoid]
        if not others and self._refusal is not None:
            raise self._refusal
        return TargetOffer([*others, *self._targets][0])

    @asynccontextmanager
    async def open_at(self, offer: TargetOffer) -> AsyncIterator[str]:
        self.tried.append(offer.address)
        if (error := self._targets[offer.address]) is not None:
            raise error
        yield offer.address

    async def open(self, **kwargs) -> str:
        async with opened_at_one(self.find, self.open_at, **kwargs) as address:
            return address


@pytest.mark.parametrize("error", [FULL, MISMATCH, LOST, STOPS])
async def test_who_refuses_or_is_lost_is_no_end_while_there_is_another(error):
    world = World(a=error, b=error, c=None)
    assert await world.open() == "c"
    assert world.tried == ["a", "b", "c"]


async def test_a_place_that_is_known_is_tried_first():
    world = World(a=None, b=FULL)
    assert await world.open(offer=TargetOffer("b")) == "a"
    assert world.tried == ["b", "a"]


async def test_what_is_to_be_avoided_is_tried_last():
    world = World(a=None, b=FULL)
    assert await world.open(avoid="a") == "a"
    assert world.tried == ["b", "a"]


@pytest.mark.parametrize(
    ("refusal", "answers", "says"),
    [
        (None, [FULL, MISMATCH], MISMATCH),
        (None, [LOST, FULL], LOST),
        (None, [FULL, LOST], LOST),
        (FULL, [MISMATCH], FULL),
        (FULL, [LOST, FULL], LOST),  # it may be back in a moment
        (MISMATCH, [STOPS], STOPS),
    ],
)
async def test_each_is_tried_once(refusal, answers, says):
    world = World(refusal, **dict(zip("ab", answers, strict=False)))
    with pytest.raises(type(says)) as raised:
        await world.open()
    assert raised.value is says
    assert world.tried == list("ab"[: len(answers)])


async def test_what_no_other_target_would_mend_is_raised_at_once():
    world = World(a=InvalidRequest("No."), b=None)
    with pytest.raises(InvalidRequest):
        await world.open()
    assert world.tried == ["a"]


async def test_errors_of_who_uses_it_are_its_own():
    world = World(a=None, b=None)
    with pytest.raises(TargetUnavailable):
        async with opened_at_one(world.find, world.open_at):
            raise TargetUnavailable("It is gone.")
    assert world.tried == ["a"]


async def test_an_error_keeps_nothing_alive():
    """As what a frame holds that its traceback leads to."""

    class Refuses(World):
        def __init__(self) -> None:
            super().__init__(a=None)
            self.errors: WeakSet[Exception] = WeakSet()

        @asynccontextmanager
        async def open_at(self, offer: TargetOffer) -> AsyncIterator[str]:
            raise self.noted(TargetUnavailable("It is gone."))
            yield

        def noted(self, error: Exception) -> Exception:
            self.errors.add(error)
            return error

    world = Refuses()
    gc.disable()
    try:
        with pytest.raises(TargetUnavailable) as raised:
            await world.open()
        del raised
        assert not world.errors
    finally:
        gc.enable()
