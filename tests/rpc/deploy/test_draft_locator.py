"""All replicas are asked: the locator of draft servers on a real socket, with a fake of Ray's handle."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.exceptions import ActorDiedError
from ray.serve.exceptions import DeploymentUnavailableError

from specwhisper.errors import TargetUnavailable
from specwhisper.rpc.serving import RunningServer
from specwhisper.wire.v1.discovery_pb2_grpc import add_DiscoveryServicer_to_server
from specwhisper_client import resolving
from specwhisper_client.api import TranscriptionClient
from specwhisper_deploy.locators import (
    ANSWER_TIMEOUT_S,
    DRAFTS_SERVICE,
    FRESH_S,
    METHOD,
    STALE_S,
    DraftLocatorService,
    DraftServerRoom,
    shuffle_by_room,
)
from specwhisper_deploy.replicas import metrics_addresses
from tests.clock import Clock
from tests.rpc.client.test_draft_servers import Draft
from tests.rpc.services import as_draft_server, eventually, running

LONG_S = 60.0  # far longer than any test here


class Replica:
    """The result of a call to one replica."""

    def __init__(self, answer: Callable[[], Awaitable[Any]]) -> None:
        self._answer = answer

    async def get_async(self) -> Any:
        return await self._answer()


class Handle:
    """Serve's handle to a deployment, with what its replicas answer to a method."""

    def __init__(self, *answers: Callable[[], Awaitable[Any]], method: str = METHOD) -> None:
        self.answers = list(answers)
        self.method = method
        self.num_asked = 0

    def broadcast(self, method: str) -> Handle:
        assert method == self.method
        self.num_asked += 1
        return self

    async def _fetch_replica_results_async(self) -> list[Replica]:
        if not self.answers:
            raise DeploymentUnavailableError("Draft")
        return [Replica(answer) for answer in self.answers]


def returns(value: Any) -> Callable[[], Awaitable[Any]]:
    async def answer() -> Any:
        return value

    return answer


def answers(address: str, num_free: int = 1) -> Callable[[], Awaitable[DraftServerRoom]]:
    return returns(DraftServerRoom(address, num_free))


async def dies() -> DraftServerRoom:
    raise ActorDiedError


async def hangs() -> DraftServerRoom:
    await asyncio.Event().wait()
    raise AssertionError


def test_a_client_waits_longer_than_the_locator():
    assert resolving.LOCATOR_DEADLINE_S > ANSWER_TIMEOUT_S


@given(st.lists(st.integers(-1, 20)), st.randoms(use_true_random=False))
def test_full_draft_servers_are_last_and_none_is_missing(rooms, rng):
    servers = [DraftServerRoom(f"a:{number}", room) for number, room in enumerate(rooms, 1)]
    ordered = shuffle_by_room(servers, rng.random)
    assert sorted(ordered, key=servers.index) == servers
    are_full = [server.num_free <= 0 for server in ordered]
    assert are_full == sorted(are_full)


def test_many_clients_are_spread_by_free_slots():
    uniform = Random(0).random
    servers = [DraftServerRoom("a:1", 12), DraftServerRoom("b:1", 4), DraftServerRoom("c:1", 0)]
    first = Counter(shuffle_by_room(servers, uniform)[0].address for _ in range(4_000))
    assert first["c:1"] == 0
    assert first["a:1"] == pytest.approx(3_000, rel=0.05)


async def test_a_draft_server_that_has_died_or_hangs_is_left_out():
    found = DraftLocatorService(Handle(answers("a:1"), hangs, dies, answers("b:1")), timeout_s=0.05)
    assert [server.address for server in await found.servers()] == ["a:1", "b:1"]


@pytest.mark.parametrize("answers", [(), (dies,), (hangs, dies)])
async def test_the_error_if_no_draft_server_answers(answers):
    with pytest.raises(TargetUnavailable, match=r"No draft server has answered the locator within 0.05 s"):
        await DraftLocatorService(Handle(*answers), timeout_s=0.05).servers()


async def test_draft_servers_are_asked_once_a_second_and_waited_for_if_their_answers_are_stale():
    handle, clock, gate = Handle(answers("a:1")), Clock(), asyncio.Event()
    service = DraftLocatorService(handle, LONG_S, clock=clock)

    async def found() -> list[str]:
        return [server.address for server in await service.servers()]

    async def is_slow() -> DraftServerRoom:
        await gate.wait()
        return DraftServerRoom("b:1", 1)

    await asyncio.gather(*(found() for _ in range(20)))
    clock.now_s += FRESH_S / 2
    assert (await found(), handle.num_asked) == (["a:1"], 1)
    handle.answers.append(is_slow)
    clock.now_s += FRESH_S
    assert await found() == ["a:1"]
    await eventually(lambda: handle.num_asked == 2)
    gate.set()
    await service._update
    assert await found() == ["a:1", "b:1"]
    handle.answers.clear()
    clock.now_s += STALE_S
    with pytest.raises(TargetUnavailable):
        await found()


def locator(handle: Handle) -> AbstractAsyncContextManager[RunningServer]:
    add = partial(add_DiscoveryServicer_to_server, DraftLocatorService(handle))
    return running({DRAFTS_SERVICE: add})


async def test_clients_begin_at_draft_servers_with_free_slots_and_follow_changes_of_the_list(monkeypatch):
    monkeypatch.setattr(resolving, "REFRESH_S", 0.0)
    monkeypatch.setattr("specwhisper_deploy.locators.FRESH_S", 0.0)
    monkeypatch.setattr("specwhisper_deploy.locators.STALE_S", 0.0)
    full, free, handle = Draft(), Draft(), Handle()
    for draft in (full, free):
        draft.released.set()
    async with as_draft_server(full) as first, as_draft_server(free) as second, locator(handle) as found:
        handle.answers = [answers(first.address, 0), answers(second.address, 1)]
        for _ in range(10):
            async with TranscriptionClient(f"locator:///{found.address}") as client:
                await client.recognize(b"audio")
        assert (full.num_calls, free.num_calls) == (0, 10)
        async with TranscriptionClient(f"locator:///{found.address}") as client:
            for address in (second.address, first.address):
                handle.answers = [answers(address)]
                await client.recognize(b"audio")
    assert (full.num_calls, free.num_calls) == (1, 11)


async def test_metrics_addresses_leave_out_a_replica_that_has_died_and_fail_if_one_hangs():
    replicas = Handle(returns("b:2"), returns(""), dies, returns("a:1"), method="metrics_address")
    assert await asyncio.to_thread(metrics_addresses(replicas, LONG_S)) == ["a:1", "b:2"]
    for answers in ((), (returns("a:1"), hangs)):
        with pytest.raises(TargetUnavailable, match="where their metrics are"):
            await asyncio.to_thread(metrics_addresses(Handle(*answers, method="metrics_address"), 0.1))
