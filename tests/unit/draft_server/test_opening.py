"""A session is offered to one target after the other until one accepts it."""

import gc
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from weakref import WeakSet

import pytest

from specwhisper.errors import InvalidRequest, PairMismatch, ServerDraining, ServerFull, TargetUnavailable
from specwhisper_draft_server.link.link import opened_at_one
from specwhisper_draft_server.link.targets import TargetOffer

FULL, MISMATCH = ServerFull("No."), PairMismatch("Other weights.")
LOST, STOPS = TargetUnavailable("It is gone."), ServerDraining("It stops.")
INVALID = InvalidRequest("No.")


class Targets:
    """Targets that answer an opened session with an error each; ``None`` accepts it.

    Parameters
    ----------
    refusal : raised by a search for another target after all targets not avoided were returned.
    """

    def __init__(self, refusal: Exception | None = None, **targets: Exception | None) -> None:
        self._refusal = refusal
        self._errors = targets
        self.tried: list[str] = []
        self.num_asked = 0

    async def find(self, avoid: Collection[str]) -> TargetOffer:
        self.num_asked += 1
        others = [address for address in self._errors if address not in avoid]
        if not others and self._refusal is not None:
            raise self._refusal
        return TargetOffer([*others, *self._errors][0])

    @asynccontextmanager
    async def open_at(self, offer: TargetOffer) -> AsyncIterator[str]:
        self.tried.append(offer.address)
        if (error := self._errors[offer.address]) is not None:
            raise error
        yield offer.address

    async def open(self, **kwargs) -> str:
        async with opened_at_one(self.find, self.open_at, **kwargs) as address:
            return address


@pytest.mark.parametrize("error", [FULL, MISMATCH, LOST, STOPS])
async def test_after_a_refusal_or_a_lost_target_the_next_is_tried(error):
    targets = Targets(a=error, b=error, c=None)
    assert await targets.open() == "c"
    assert targets.tried == ["a", "b", "c"]


@pytest.mark.parametrize("how", [{"offer": TargetOffer("b")}, {"avoid": "a"}], ids=["known", "avoided"])
async def test_a_known_offer_is_tried_first_and_an_avoided_target_last(how):
    targets = Targets(a=None, b=FULL)
    assert await targets.open(**how) == "a"
    assert targets.tried == ["b", "a"]


@pytest.mark.parametrize(
    ("refusal", "answers", "error"),
    [
        (None, [FULL, MISMATCH], MISMATCH),
        (None, [LOST, FULL], LOST),
        (None, [FULL, LOST], LOST),
        (FULL, [MISMATCH], FULL),
        (FULL, [LOST, FULL], LOST),  # it may return soon
        (MISMATCH, [STOPS], STOPS),
        (None, [INVALID], INVALID),  # every target would raise it
    ],
)
async def test_each_target_is_tried_once(refusal, answers, error):
    targets = Targets(refusal, **dict(zip("ab", answers, strict=False)))
    with pytest.raises(type(error)) as raised:
        await targets.open()
    assert raised.value is error
    assert targets.tried == list("ab"[: len(answers)])


async def test_errors_of_the_session_itself_open_no_other_target():
    targets = Targets(a=None, b=None)
    with pytest.raises(TargetUnavailable):
        async with opened_at_one(targets.find, targets.open_at):
            raise TargetUnavailable("It is gone.")
    assert targets.tried == ["a"]


async def test_an_error_is_freed_without_garbage_collection():
    """A frame of its traceback that holds the error would keep it alive."""

    class Refusing(Targets):
        def __init__(self) -> None:
            super().__init__(a=None)
            self.errors: WeakSet[Exception] = WeakSet()

        @asynccontextmanager
        async def open_at(self, offer: TargetOffer) -> AsyncIterator[str]:
            raise self.recorded(TargetUnavailable("It is gone."))
            yield

        def recorded(self, error: Exception) -> Exception:
            self.errors.add(error)
            return error

    targets = Refusing()
    gc.disable()
    try:
        with pytest.raises(TargetUnavailable) as raised:
            await targets.open()
        del raised
        assert not targets.errors
    finally:
        gc.enable()
