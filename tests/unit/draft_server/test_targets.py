"""A target for a session is found among several, likelier one with free slots, even while some are silent."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from specwhisper.errors import PairMismatch, ServerFull, TargetUnavailable
from specwhisper_draft_server.link import targets
from specwhisper_draft_server.link.targets import TargetOffer, Targets, choose

GONE = TargetUnavailable("It is gone.")


class Answers:
    """Answers by address; ``None`` never answers."""

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


async def test_sessions_opened_at_once_fill_each_target_exactly():
    network = Answers(a=TargetOffer("a", free_slots=4), b=TargetOffer("b", free_slots=3))
    found = Targets([*network.answers])
    with ExitStack() as opening:
        for _ in range(7):
            offer = await found.find(network.locate)
            opening.enter_context(found.opening(offer.address))
        assert found._opening == {"a": 4, "b": 3}
    assert not found._opening


async def test_a_silent_target_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(targets, "GRACE_S", 0.01)
    network = Answers(a=None, b=TargetOffer("b", free_slots=1))
    async with asyncio.timeout(60):
        assert (await Targets([*network.answers]).find(network.locate)).address == "b"
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
async def test_the_error_if_no_target_takes_the_session(answers, kind):
    network = Answers(**{f"t{number}": answer for number, answer in enumerate(answers)})
    with pytest.raises(kind):
        await Targets([*network.answers]).find(network.locate)


async def test_while_a_locator_is_lost_its_targets_are_asked():
    network = Answers(locator=TargetOffer("a", "lease", 3), a=TargetOffer("a", "its own", 2), b=GONE)
    found = Targets(["locator"])
    assert await found.find(network.locate) == TargetOffer("a", "lease", 3)
    network.answers["locator"] = TargetOffer("b", "another lease", 3)
    assert (await found.find(network.locate)).address == "b"
    assert set(network.asked) == {"locator"}
    network.answers["locator"] = GONE
    network.asked.clear()
    assert await found.find(network.locate) == TargetOffer("a", "its own", 2), "that lease is outdated"
    assert set(network.asked) == {"locator", "a", "b"}
    network.answers["locator"] = ServerFull("No.")
    with pytest.raises(ServerFull):  # the locator speaks for all targets
        await found.find(network.locate)


async def test_the_first_answer_is_returned():
    network = Answers(a=None, b=TargetOffer("b"), c=GONE)
    async with asyncio.timeout(60):
        assert await Targets([*network.answers]).first(network.locate) == TargetOffer("b")
    with pytest.raises(TargetUnavailable):
        await Targets("a").first(Answers(a=GONE).locate)


@pytest.mark.parametrize("is_describing", [False, True])
async def test_a_silent_locator_is_not_waited_for_if_targets_are_known(is_describing, monkeypatch):
    monkeypatch.setattr(targets, "HEDGE_S", 0.01)
    monkeypatch.setattr(targets, "GRACE_S", 0.01)
    network = Answers(locator=TargetOffer("a", "lease", 3), a=TargetOffer("a", "its own", 2))
    found = Targets(["locator"])
    await found.find(network.locate)
    network.answers["locator"] = None
    async with asyncio.timeout(60):
        answer = await (found.first(network.locate) if is_describing else found.find(network.locate))
    assert answer == TargetOffer("a", "its own", 2)
    assert len(asyncio.all_tasks()) == 1


async def test_the_answer_of_a_slow_locator_is_used(monkeypatch):
    monkeypatch.setattr(targets, "HEDGE_S", 0.01)
    may_answer = asyncio.Event()
    network = Answers(locator=TargetOffer("a"), a=TargetOffer("a"))

    async def locate(address: str) -> TargetOffer:
        if address == "locator" and asked_again:
            await may_answer.wait()
        if address == "a":
            may_answer.set()
            await asyncio.Event().wait()
        return await network.locate(address)

    found, asked_again = Targets(["locator"]), False
    await found.find(locate)
    asked_again = True
    network.answers["locator"] = TargetOffer("b", "lease", 3)
    async with asyncio.timeout(60):
        assert await found.find(locate) == TargetOffer("b", "lease", 3)


async def test_known_targets_are_limited(monkeypatch):
    monkeypatch.setattr(targets, "MAX_DISCOVERED", 2)
    network = Answers(locator=TargetOffer("a"), b=TargetOffer("b"), c=TargetOffer("c"))
    found = Targets(["locator"])
    for name in "abc":
        network.answers["locator"] = TargetOffer(name)
        await found.find(network.locate)
    network.answers["locator"] = GONE
    network.asked.clear()
    await found.find(network.locate)
    assert set(network.asked) == {"locator", "b", "c"}


@pytest.mark.parametrize(
    ("others", "avoid", "is_taken"),
    [
        ({"b": TargetOffer("b", free_slots=1)}, (), False),
        ({"b": ServerFull("No.")}, (), None),  # full, which is not lost
        ({"b": PairMismatch("Other.")}, (), None),
        ({"b": GONE}, (), True),
        ({"b": ServerFull("No."), "c": GONE}, (), True),
        ({"b": TargetOffer("b", is_standby=True)}, (), True),  # there are only standbys
        ({"b": None, "c": ServerFull("No.")}, ("b",), True),  # it hangs, and lost the session
        ({"b": None, "c": ServerFull("No.")}, (), True),  # it hangs
        ({"b": None, "c": TargetOffer("c", free_slots=1)}, (), False),  # there is another
    ],
)
async def test_a_standby_is_taken_once_a_target_is_lost(others, avoid, is_taken, monkeypatch):
    monkeypatch.setattr(targets, "GRACE_S", 0.01)
    monkeypatch.setattr(targets, "STANDBY_GRACE_S", 0.02)
    answers = Answers(a=TargetOffer("a", free_slots=9, is_standby=True), **others)
    known = Targets([*answers.answers])
    if is_taken is None:
        with pytest.raises((ServerFull, PairMismatch)):
            await known.find(answers.locate, avoid)
        return
    found = {(await known.find(answers.locate, avoid)).address for _ in range(30)}
    assert ("a" in found) == is_taken


async def test_a_target_in_a_long_forward_pass_is_waited_for_rather_than_a_standby(monkeypatch):
    monkeypatch.setattr(targets, "GRACE_S", 0.01)
    answers = Answers(a=TargetOffer("a", free_slots=9, is_standby=True), b=None)

    async def locate(address: str) -> TargetOffer:
        if address == "b" and answers.asked.count("b"):  # the second time
            answers.answers["b"] = TargetOffer("b", free_slots=1)
        return await answers.locate(address)

    assert (await Targets("ab").find(locate)).address == "b"


def offers(**free_slots: int) -> list[TargetOffer]:
    return [TargetOffer(address, free_slots=number) for address, number in free_slots.items()]


@pytest.mark.parametrize(
    ("free_slots", "opening", "avoid", "expected"),
    [
        ({"a": 4, "b": 3, "c": 0}, {}, (), [4, 3, 0]),
        ({"a": 4, "b": 3}, {"a": 3, "b": 5, "c": 1}, (), [1, 0]),
        ({"a": 2, "b": 1, "c": 0}, {"a": 2, "b": 1}, (), [2, 1, 1]),
        ({"a": 9, "b": 1}, {}, "a", [1]),
        ({"a": 9, "b": 1}, {}, "ab", [9, 1]),
    ],
    ids=["free slots", "less those that open", "no slot is free", "one to avoid", "all to avoid"],
)
def test_the_weights_of_targets(free_slots, opening, avoid, expected):
    weights: list[int] = []

    def draw(drawn: Sequence[int]) -> int:
        weights.extend(drawn)
        return 0

    choose(offers(**free_slots), opening, avoid, draw)
    assert weights == expected
