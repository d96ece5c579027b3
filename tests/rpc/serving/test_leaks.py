"""Slots, limits, tasks and objects of sessions are freed, however their clients leave."""

import asyncio
import gc
import threading

import pytest

from experiments.common.models.scripted import ScriptedModel
from specwhisper.engine.target_session import TargetSession
from specwhisper_draft_server.drafting import DraftStream
from specwhisper_draft_server.link.grpc_target_stream import Outbox
from specwhisper_draft_server.session import Session
from tests.nightly import examples
from tests.rpc.gated import Gated
from tests.rpc.services import (
    MAX_SESSIONS,
    MODES,
    PROMPTLY_S,
    Draft,
    all_free,
    audio_requests,
    check_text,
    draft_server,
    eventually,
    recording,
    streaming_config,
    target_server,
)

NUM_SESSIONS = examples(by_day=36, at_night=200)
AT_ONCE = 8
KINDS = (Session, DraftStream, Outbox, TargetSession, asyncio.Queue)  # a session has one of each


async def short_session(draft: Draft, number: int) -> None:
    """Run a session; every third client cancels: before, during or after its audio."""
    mode = MODES[number % 4]
    if number % 3:
        await check_text(draft, 1.0, mode=mode)
        return
    call = draft.stub.StreamingRecognize()
    for request in [streaming_config(mode=mode), *audio_requests(recording(1.0))][: 1 + number % 4]:
        await call.write(request)
    if number % 2:
        await call.read()
    call.cancel()


async def run_sessions(draft: Draft, numbers: range) -> None:
    room = asyncio.Semaphore(AT_ONCE - 1)  # a cancelled session may still count for a moment

    async def run(number: int) -> None:
        async with room:
            await short_session(draft, number)
            await eventually(lambda: draft.service.num_sessions < AT_ONCE)

    await asyncio.gather(*map(run, numbers))


def num_alive() -> dict[str, int]:
    gc.collect()
    kinds = [type(thing) for thing in gc.get_objects()]
    return {kind.__name__: kinds.count(kind) for kind in KINDS}


async def test_many_sessions_leave_no_resources(target, draft):
    await run_sessions(draft, range(12))
    await all_free(target, draft)
    await eventually(lambda: target.server.calls.num_open == 0)
    tasks, threads = len(asyncio.all_tasks()), threading.active_count()
    alive = num_alive()
    await run_sessions(draft, range(NUM_SESSIONS))
    await all_free(target, draft)
    await eventually(lambda: draft.server.calls.num_open == target.server.calls.num_open == 0)
    await eventually(lambda: len(asyncio.all_tasks()) <= tasks)
    assert threading.active_count() <= threads
    assert num_alive() == alive


async def send_audio(call) -> None:
    for request in audio_requests(recording(65.0)):
        await call.write(request)


@pytest.mark.parametrize("server", ["target", "draft"])
@pytest.mark.parametrize("where", ["encode", "score"])
async def test_a_client_that_cancels_while_a_model_runs_for_it(server, where):
    gated = Gated(where, error_rate=0.2 if server == "draft" else 0.0)
    target_model = gated if server == "target" else ScriptedModel(MAX_SESSIONS)
    draft_model = gated if server == "draft" else ScriptedModel(MAX_SESSIONS, error_rate=0.2)
    async with target_server(target_model) as target, draft_server(target.address, draft_model) as draft:
        gated.gate.set()
        await check_text(draft, 1.0)
        tasks = len(asyncio.all_tasks())
        gated.gate.clear()
        gated.is_there.clear()
        call = draft.stub.StreamingRecognize()
        await call.write(streaming_config(mode="MODE_SYNC"))
        sending = asyncio.create_task(send_audio(call))
        await eventually(gated.is_there.is_set)
        call.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        # Calls and session limits are freed at once; a slot in use waits for the model.
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)
        await eventually(
            lambda: draft.server.calls.num_open == target.server.calls.num_open == 0, within_s=PROMPTLY_S
        )
        gated.gate.set()
        await all_free(target, draft)
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks, within_s=PROMPTLY_S)
        await check_text(draft, 1.0)


async def test_clients_that_cancel_while_they_wait_for_the_engine():
    """The engine is in a forward pass: sessions open and close only after it."""
    gated = Gated("score")
    async with target_server(gated) as target, draft_server(target.address) as draft:
        busy = asyncio.create_task(check_text(draft, mode="MODE_TARGET_ONLY"))
        await eventually(gated.is_there.is_set)
        waiting = [draft.stub.StreamingRecognize() for _ in range(MAX_SESSIONS - 1)]
        for call in waiting:
            await call.write(streaming_config())
        await eventually(lambda: draft.service.num_sessions == MAX_SESSIONS)
        for call in waiting:
            call.cancel()
        await eventually(lambda: draft.service.num_sessions == 1, within_s=PROMPTLY_S)
        gated.gate.set()
        await busy
        await all_free(target, draft)
