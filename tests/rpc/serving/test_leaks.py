"""Servers hold no more objects after many sessions than after a few."""

import asyncio
import gc
import threading

from specwhisper.engine.target_session import TargetSession
from specwhisper_draft_server.drafting import DraftStream
from specwhisper_draft_server.link.grpc_target_stream import Outbox
from specwhisper_draft_server.session import Session
from tests.nightly import examples
from tests.rpc.services import (
    MODES,
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


async def test_many_sessions_leave_no_resources():
    async with target_server() as target, draft_server(target.address) as draft:
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
