"""Sessions of a stopping or slow target migrate once another target has taken them."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest
import torch

from experiments.common.models.scripted import ScriptedModel
from experiments.common.models.speech import SpeechModel, spoken_utterances, talk
from specwhisper.types import SAMPLE_RATE, Limits, Mode
from specwhisper.wire import status
from specwhisper_draft_server.link import link, resuming, targets
from specwhisper_draft_server.transcriber import ANY
from tests.nightly import mostly_nightly
from tests.rpc.services import (
    MAX_SESSIONS,
    HalfSent,
    count_locate_calls,
    draft_server,
    eventually,
    slowed,
    target_server,
)
from tests.rpc.speaking import Listener, live_client, speaking_draft, speaking_target

AT_ONCE = 0.02  # seconds: a session that left without another target fails
ONE = Limits(max_sessions=1)
RESUME_TIMEOUT_S = 20.0  # for sessions whose target is killed
pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


@pytest.fixture(autouse=True)
def short_retry_time_and_long_grace(monkeypatch):
    monkeypatch.setattr(status, "PUSHBACK_MS", 20)
    monkeypatch.setattr(targets, "GRACE_S", 5.0)  # on a busy machine a target that could take it answers late


@asynccontextmanager
async def stopping(target):
    """Stop a target; it serves its sessions to their end."""
    task = asyncio.create_task(
        target.server.stop(drain_timeout_s=60.0, on_drain=target.service.announce_drain)
    )
    try:
        yield task
    finally:
        await task


class Talk:
    """A client that sends a part of live speech, and the rest on ``end``."""

    def __init__(self, draft, mode: str, _: int, **more) -> None:
        mode = Mode[mode.removeprefix("MODE_")]
        self._client = live_client(draft.address, mode=mode, reconnect_s=0.0, **more)
        self._listener = Listener(self._client)

    async def begin(self) -> None:
        await self._client.send(talk()[: 10 * SAMPLE_RATE * 2])
        await self._listener.received(8)

    async def end(self) -> None:
        await self._client.send(talk()[10 * SAMPLE_RATE * 2 :])
        await self._client.finish()
        await self._listener.whole()
        self._listener.check(spoken_utterances(talk()))
        assert self._client.num_reconnects == 0
        await self._client.__aexit__()


@asynccontextmanager
async def sessions(
    kind: str, mode: str, port: int, num: int = 2, model=None, resume_timeout_s: float = AT_ONCE
):
    """Yield a target with sessions, an opener of a second one, draft server, clients."""
    if kind == "recordings":
        open_target, open_draft, client = target_server, draft_server, HalfSent
    else:
        open_target, open_draft = speaking_target, speaking_draft
        client = partial(Talk, continue_unverified=kind == "live, draft-only in outages")
    async with open_target(**({"model": model} if model else {})) as busy:
        named = f"{busy.address},127.0.0.1:{port}"
        async with open_draft(named, resume_timeout_s=resume_timeout_s) as draft:
            clients = [client(draft, mode, seed) for seed in range(num)]
            for each in clients:
                await each.begin()
            yield busy, partial(open_target, port=port), draft, clients
            await eventually(lambda: draft.service.num_sessions == 0)


@pytest.mark.parametrize("mode", mostly_nightly(["MODE_FULL", "MODE_TARGET_ONLY"]))
@pytest.mark.parametrize("kind", ["recordings", "live"])
async def test_a_session_stays_until_another_target_has_room(kind, mode, unused_tcp_port):
    async with sessions(kind, mode, unused_tcp_port) as (busy, open_other, _, (one, another)):
        async with open_other(limits=ONE) as other, stopping(busy) as stopped:
            await eventually(lambda: (busy.service.num_sessions, other.service.num_sessions) == (1, 1))
            await one.end()  # on either target
            await eventually(lambda: (busy.service.num_sessions, other.service.num_sessions) == (0, 1))
            await stopped
            await another.end()
            await eventually(lambda: other.service.num_sessions == 0)


@pytest.mark.parametrize("is_killed", [False, True], ids=["drained", "killed"])
@pytest.mark.parametrize("kind", mostly_nightly(["live, draft-only in outages", "recordings", "live"]))
async def test_each_locate_call_is_followed_by_a_session(kind, is_killed, unused_tcp_port, monkeypatch):
    """A router counts each Locate call as a session, and routes others elsewhere."""
    timeout_s = RESUME_TIMEOUT_S if is_killed else AT_ONCE
    opened = sessions(kind, "MODE_FULL", unused_tcp_port, resume_timeout_s=timeout_s)
    async with opened as (busy, open_other, _, clients):
        async with open_other() as other:
            asked = count_locate_calls(other, monkeypatch)
            if is_killed:
                await busy.server.stop(drain_timeout_s=0)
                await eventually(lambda: other.service.num_sessions == 2)
            else:
                async with stopping(busy) as stopped:
                    await eventually(lambda: other.service.num_sessions == 2)
                    await stopped
            assert len(asked) == 2
            await asyncio.gather(*(client.end() for client in clients))


class Failing(SpeechModel):
    """A model that runs out of memory when a test wants it to."""

    has_memory = True

    def score(self, rows):
        if not self.has_memory:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return super().score(rows)


async def test_a_target_that_failed_a_session_is_avoided_even_if_it_is_the_emptiest(
    unused_tcp_port, monkeypatch, caplog
):
    model = Failing(MAX_SESSIONS)
    there = sessions("live", "MODE_FULL", unused_tcp_port, 1, model, resume_timeout_s=RESUME_TIMEOUT_S)
    async with there as (_, open_other, draft, (client,)):
        async with open_other(limits=ONE) as other:
            asked = count_locate_calls(other, monkeypatch)
            while not asked:  # until the other target is known
                await draft.service._transcriber._find(ANY)
            model.has_memory = False
            await client.end()
    losses = [record for record in caplog.records if record.message == "target lost"]
    assert len(losses) == 1, "the failed target is not tried again"


async def test_a_spare_of_other_weights_is_logged_once_and_the_session_stays(
    unused_tcp_port, monkeypatch, caplog
):
    async with sessions("live", "MODE_FULL", unused_tcp_port, 1) as (busy, open_other, _, (client,)):
        async with open_other(digest="digest of another one") as other, stopping(busy):
            asked = count_locate_calls(other, monkeypatch)
            await eventually(lambda: len(asked) >= 3)
            await client.end()
    [logged] = [record for record in caplog.records if record.message == "cannot migrate"]
    assert logged.target == busy.address
    assert "other weights than those of target" in logged.error


STEP_S = 0.08


@pytest.fixture
def soon(monkeypatch):
    """Let sessions ask for a faster target soon, and expect one of those that have not answered yet."""
    monkeypatch.setattr(targets, "FIRST_S", 0.1)
    monkeypatch.setattr(targets, "MAX_STAY_S", 0.1)
    monkeypatch.setattr(resuming, "CHECK_S", 0.1)
    monkeypatch.setattr(link, "UNKNOWN_S", 0.01)


@pytest.mark.parametrize("mode", mostly_nightly(["MODE_FULL", "MODE_TARGET_ONLY"]))
@pytest.mark.parametrize("kind", mostly_nightly(["recordings", "live"]))
async def test_sessions_leave_a_slow_target_and_their_text_stays(
    kind, mode, unused_tcp_port, soon, caplog, monkeypatch
):
    monkeypatch.setattr(targets, "SLOW_S", STEP_S / 4)
    model = slowed(ScriptedModel(MAX_SESSIONS) if kind == "recordings" else SpeechModel(MAX_SESSIONS), STEP_S)
    async with sessions(kind, mode, unused_tcp_port, 2, model) as (slow, open_other, _, clients):
        async with open_other():
            ends = asyncio.gather(*(client.end() for client in clients))
            await eventually(lambda: slow.service.num_sessions == 0)
            await ends
    left = [record for record in caplog.records if record.message == "slow target left"]
    assert [(record.target, record.answer_s >= STEP_S) for record in left] == [(slow.address, True)] * 2


async def test_sessions_of_a_lost_target_continue_at_the_standby():
    async with target_server(standby=True) as standby:
        num_slots = standby.num_free_slots
        async with target_server() as active, draft_server(f"{active.address},{standby.address}") as draft:
            client = HalfSent(draft)
            await client.begin()
            assert active.service.num_sessions == 1
            assert standby.num_free_slots == num_slots
            await active.server.stop(0.0)
            await eventually(lambda: standby.service.num_sessions == 1)
            await client.end()
