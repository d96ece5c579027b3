"""Which of several targets takes a session, and how one is found while some are away."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from specwhisper.errors import PairMismatch, ServerDraining, ServerFull, TargetUnavailable
from specwhisper_draft_server.link import targets
from specwhisper_draft_server.link.choosing import TargetOffer
from specwhisper_draft_server.link.targets import Targets

GONE = TargetUnavailable("It is gone.")


class World:
    """What is answered at each address; whoever is asked for ever says nothing."""

    def __init__(self, **answers: TargetOffer | Exception | None) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def locate(self, address: str) -> TargetOffer:
        self.asked.append(address)
        answer = self.answers[address]
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Locating(Targets):
    """Targets that are all asked in one way."""

    def __init__(self, locate, *named: str) -> None:
        super().__init__(named)
        self._locate_in_world = locate

    async def find(self, *, avoid: str = "") -> TargetOffer:
        return await super().find(self._locate_in_world, [avoid])


def targets_of(world: World, *named: str) -> Targets:
    return Locating(world.locate, *(named or tuple(world.answers)))


async def test_sessions_that_open_at_once_fill_targets_and_no_more():
    world = World(a=TargetOffer("a", free_slots=4), b=TargetOffer("b", free_slots=3))
    targets = targets_of(world)
    with ExitStack() as opening:
        for _ in range(7):
            offer = await targets.find()
            opening.enter_context(targets.opening(offer.address))
        assert targets._opening == {"a": 4, "b": 3}
    assert not targets._opening


@pytest.mark.parametrize("elsewhere", [GONE, ServerFull("No."), ServerDraining("It stops.")])
async def test_who_is_not_there_or_has_no_room_is_left_out(elsewhere):
    world = World(a=elsewhere, b=TargetOffer("b", free_slots=1))
    assert (await targets_of(world).find()).address == "b"


async def test_an_address_is_avoided_while_there_is_another():
    world = World(a=TargetOffer("a", free_slots=9), b=TargetOffer("b", free_slots=1))
    assert (await targets_of(world).find(avoid="a")).address == "b"
    world.answers["b"] = GONE
    assert (await targets_of(world).find(avoid="a")).address == "a"


async def test_nobody_waits_for_one_that_says_nothing(monkeypatch):
    monkeypatch.setattr(targets, "GRACE_S", 0.01)
    world = World(a=None, b=TargetOffer("b", free_slots=1))
    async with asyncio.timeout(5):
        assert (await targets_of(world).find()).address == "b"
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([GONE, GONE], TargetUnavailable),
        ([GONE, ServerFull("No.")], ServerFull),
        ([PairMismatch("?")], PairMismatch),
        ([PairMismatch("?"), GONE], TargetUnavailable),
        ([PairMismatch("?"), ServerFull("No.")], ServerFull),
    ],
)
async def test_what_is_said_where_nobody_takes_it(answers, kind):
    world = World(**{f"t{number}": answer for number, answer in enumerate(answers)})
    with pytest.raises(kind):
        await targets_of(world).find()


async def test_while_a_locator_is_away_those_are_asked_that_it_told_of():
    world = World(locator=TargetOffer("a", "lease", 3), a=TargetOffer("a", "its own", 2), b=GONE)
    found = targets_of(world, "locator")
    assert await found.find() == TargetOffer("a", "lease", 3)
    world.answers["locator"] = TargetOffer("b", "another lease", 3)
    assert (await found.find()).address == "b"
    world.answers["locator"] = GONE
    world.asked.clear()
    assert await found.find() == TargetOffer("a", "its own", 2), "that of the locator is old by now"
    assert set(world.asked) == {"locator", "a", "b"}
    world.answers["locator"] = ServerFull("No.")
    with pytest.raises(ServerFull):  # whoever leads to all says that there is no room
        await found.find()


async def test_the_first_answer_counts():
    world = World(a=None, b=TargetOffer("b"), c=GONE)
    async with asyncio.timeout(5):
        assert await targets_of(world).first(world.locate) == TargetOffer("b")
    with pytest.raises(TargetUnavailable):
        await targets_of(World(a=GONE)).first(World(a=GONE).locate)


@pytest.mark.parametrize("is_describing", [False, True])
async def test_a_locator_that_says_nothing_costs_little_where_targets_are_known(is_describing, monkeypatch):
    monkeypatch.setattr(targets, "HEDGE_S", 0.01)
    monkeypatch.setattr(targets, "GRACE_S", 0.01)
    world = World(locator=TargetOffer("a", "lease", 3), a=TargetOffer("a", "its own", 2))
    found = targets_of(world, "locator")
    await found.find()
    world.answers["locator"] = None
    async with asyncio.timeout(5):
        answer = await (found.first(world.locate) if is_describing else found.find())
    assert answer == TargetOffer("a", "its own", 2)
    assert len(asyncio.all_tasks()) == 1


async def test_a_locator_that_is_slow_is_still_heard(monkeypatch):
    monkeypatch.setattr(targets, "HEDGE_S", 0.01)
    may_answer = asyncio.Event()
    world = World(locator=TargetOffer("a"), a=TargetOffer("a"))

    async def locate(address: str) -> TargetOffer:
        if address == "locator" and asked_again:
            await may_answer.wait()
        if address == "a":
            may_answer.set()
            await asyncio.Event().wait()
        return await world.locate(address)

    found, asked_again = Locating(locate, "locator"), False
    await found.find()
    asked_again = True
    world.answers["locator"] = TargetOffer("b", "lease", 3)
    async with asyncio.timeout(5):
        assert await found.find() == TargetOffer("b", "lease", 3)


async def test_while_a_locator_answers_nobody_else_is_asked():
    world = World(locator=TargetOffer("a"), a=TargetOffer("a"))
    found = targets_of(world, "locator")
    for _ in range(3):
        await found.find()
    assert set(world.asked) == {"locator"}


async def test_what_is_gone_is_forgotten_once_others_are_named():
    world = World(locator=TargetOffer("a"), a=TargetOffer("a"), b=TargetOffer("b"))
    found = targets_of(world, "locator")
    await found.find()
    found.note_gone("a")
    assert found.knows("a"), "with the locator away it may be back before that"
    world.answers["locator"] = TargetOffer("b")
    await found.find()
    assert (found.knows("a"), found.knows("b"), found.knows("locator")) == (False, True, True)


async def test_what_is_named_again_is_not_gone():
    world = World(locator=TargetOffer("a"), a=TargetOffer("a"), b=TargetOffer("b"))
    found = targets_of(world, "locator")
    await found.find()
    found.note_gone("a")
    await found.find()
    world.answers["locator"] = TargetOffer("b")
    await found.find()
    assert found.knows("a")


async def test_only_so_many_are_known(monkeypatch):
    monkeypatch.setattr(targets, "MAX_DISCOVERED", 2)
    world = World(locator=TargetOffer("a"))
    found = targets_of(world, "locator")
    for name in "abc":
        world.answers["locator"] = TargetOffer(name)
        await found.find()
    assert [found.knows(name) for name in "abc"] == [False, True, True]
