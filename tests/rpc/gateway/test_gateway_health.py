"""``/health`` caches its answer for seconds, and shows details only with a key."""

import asyncio

import pytest

from specwhisper_gateway.state import CachedAnswer
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import gateway_for, running_gateway
from tests.rpc.services import eventually

KEY = {"Authorization": "Bearer right"}
OK = {"status": "ok"}


class Counted(ScriptedTranscription):
    """Counts its calls, and answers when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.num_asked = 0
        self.may_answer = asyncio.Event()

    async def GetModel(self, request, context):
        self.num_asked += 1
        await self.may_answer.wait()
        return await super().GetModel(request, context)


async def test_all_callers_share_one_answer():
    server = Counted()
    async with gateway_for(server) as gateway:
        asking = [asyncio.create_task(gateway.http.get("/health")) for _ in range(20)]
        await eventually(lambda: server.num_asked and len(gateway.server.server_state.tasks) == 20)
        server.may_answer.set()
        replies = await asyncio.gather(*asking)
        assert {reply.status_code for reply in replies} == {200}
        assert (await gateway.http.get("/health")).json()["target_model"] == "large"
    assert server.num_asked == 1


async def test_callers_without_a_key_see_the_status_alone():
    async with gateway_for(api_key="right") as gateway:
        assert (await gateway.http.get("/health", headers=KEY)).json()["target_model"] == "large"
        for shown in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic right"}):
            reply = await gateway.http.get("/health", headers=shown)
            assert (reply.status_code, reply.json()) == (200, OK)


async def test_callers_without_a_key_do_not_see_the_error(unused_tcp_port):
    address = f"127.0.0.1:{unused_tcp_port}"
    async with running_gateway(address, api_key="right") as gateway:
        known = await gateway.http.get("/health", headers=KEY)
        stranger = await gateway.http.get("/health")
    assert (known.status_code, stranger.status_code) == (503, 503)
    assert address in known.text
    assert address not in stranger.text
    assert stranger.json()["error"]["message"] == "This gateway cannot transcribe at present."


async def test_an_answer_expires():
    num_asked = 0

    async def ask():
        nonlocal num_asked
        num_asked += 1
        return num_asked

    assert [await CachedAnswer(ask).get() for _ in range(2)] == [1, 2]
    kept, fresh = CachedAnswer(ask, max_age_s=600), CachedAnswer(ask, max_age_s=0)
    assert [await kept.get() for _ in range(3)] == [3, 3, 3]
    assert [await fresh.get() for _ in range(3)] == [4, 5, 6]


async def test_a_caller_that_leaves_does_not_cancel_the_answer():
    may_answer = asyncio.Event()

    async def ask():
        await may_answer.wait()
        raise KeyError("an error")

    answer = CachedAnswer(ask)
    leaving, staying = (asyncio.create_task(answer.get()) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    may_answer.set()
    with pytest.raises(KeyError):
        await staying
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_a_pending_check_is_cancelled_on_close():
    was_cancelled = False

    async def ask():
        nonlocal was_cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled = True
            raise

    answer = CachedAnswer(ask)
    asking = asyncio.create_task(answer.get())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await answer.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert was_cancelled
