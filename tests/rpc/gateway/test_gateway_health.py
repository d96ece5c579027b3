"""``/health`` caches its answer for seconds, and shows details only with a key."""

import asyncio

import pytest

from specwhisper.errors import PairMismatch
from specwhisper_gateway import state
from specwhisper_gateway.state import CachedAnswer
from tests.rpc.gateways import gateway_for, running_gateway
from tests.rpc.services import eventually

KEY = {"Authorization": "Bearer right"}


async def test_callers_without_a_key_see_the_status_alone(unused_tcp_port):
    async with gateway_for(api_key="right") as gateway:
        assert (await gateway.http.get("/health", headers=KEY)).json()["target_model"] == "large"
        for shown in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic right"}):
            reply = await gateway.http.get("/health", headers=shown)
            assert (reply.status_code, reply.json()) == (200, {"status": "ok"})
    address = f"127.0.0.1:{unused_tcp_port}"
    async with running_gateway(address, api_key="right") as gateway:
        known = await gateway.http.get("/health", headers=KEY)
        stranger = await gateway.http.get("/health")
    assert (known.status_code, stranger.status_code) == (503, 503)
    assert address in known.text
    assert address not in stranger.text
    assert stranger.json()["error"]["message"] == "This gateway cannot transcribe at present."


class Asked:
    """Counts how often it is asked; returns the number, or raises an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.num_asked, self.error = 0, error
        self.may_answer = asyncio.Event()

    async def __call__(self) -> int:
        self.num_asked += 1
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return self.num_asked


@pytest.mark.parametrize(("max_age_s", "answers"), [(600, [1, 1, 1]), (0, [1, 2, 3])])
async def test_an_answer_expires(max_age_s, answers, monkeypatch):
    monkeypatch.setattr(state, "MAX_AGE_S", max_age_s)
    asked = Asked()
    asked.may_answer.set()
    answer = CachedAnswer(asked)
    assert [await answer.get() for _ in range(3)] == answers


async def test_an_error_is_shared_and_a_caller_that_leaves_ends_no_other(monkeypatch):
    monkeypatch.setattr(state, "MAX_AGE_S", 600)
    asked = Asked(PairMismatch("They do not fit."))
    answer = CachedAnswer(asked)
    leaving, *staying = (asyncio.create_task(answer.get()) for _ in range(3))
    await eventually(lambda: asked.num_asked == 1)
    leaving.cancel()
    asked.may_answer.set()
    for task in staying:
        with pytest.raises(PairMismatch):
            await task
    assert asked.num_asked == 2  # the first was cancelled
