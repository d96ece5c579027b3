"""The target's engine alone: sessions in this process, without messages of gRPC."""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter_ns

from experiments.crowd.recited import Pass, RecitedDraft, RecitedModel
from specwhisper.engine.target_engine import TargetEngine
from specwhisper.options import DecodingOptions
from specwhisper.types import Failed, FromTarget, Limits, Mode, ToTarget

OPTIONS = DecodingOptions.greedy(language="en", timestamps=False)
MODE = Mode.FULL
PIECE_SAMPLES = 8_000
MAX_NUM_BATCHED_TOKENS = 4096  # every session takes part in every forward pass


async def run_engine(num_sessions: int, pass_ms: float, warm_up_s: float, period_s: float) -> list[Pass]:
    """Run sessions on an engine in its thread; return the forward passes of the period."""
    model = RecitedModel(num_sessions, pass_ms=pass_ms)
    engine = TargetEngine(
        model, limits=Limits(max_sessions=num_sessions), max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS
    )
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def receive(session_id: str, draft: RecitedDraft, event: FromTarget) -> None:
        if isinstance(event, Failed) and not failure.done():
            failure.set_exception(event.error)
        send(session_id, draft.answer(event))

    def send(session_id: str, messages: list[ToTarget]) -> None:
        for message in messages:
            engine.thread.post(partial(engine.verifier.submit, session_id, message, perf_counter_ns()))

    for number in range(num_sessions):
        session_id, draft = str(number), RecitedDraft(number, PIECE_SAMPLES)
        engine.thread.subscribe(session_id, partial(receive, session_id, draft))
        await engine.thread.call(partial(engine.verifier.open, session_id, MODE, OPTIONS))
        send(session_id, draft.begin())
    await asyncio.wait([failure], timeout=warm_up_s)
    passes: list[Pass] = []
    model.passes = passes
    await asyncio.wait([failure], timeout=period_s)
    model.passes = []
    await engine.stop()
    if failure.done():
        failure.result()
    return passes
