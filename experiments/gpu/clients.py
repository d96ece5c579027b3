"""Sessions of draft servers whose draft costs nothing: only the target is measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from experiments.common.bench.clock import sleep_until
from experiments.common.replay.model import ReplayDraft
from experiments.gpu.texts import OPTIONS, Texts
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.types import Mode
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.drafts.drafting import Drafting
from specwhisper_draft_server.link.link import TargetLink
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.sessions.session import Session, SessionRequest

CONNECT_TIMEOUT_S = 60.0
GAMMA = 5


@dataclass(frozen=True, slots=True)
class Load:
    """Sessions that transcribe recordings in turn.

    Attributes
    ----------
    begin_s, end_s : counted period by the monotonic clock, which all processes share.
    """

    address: str
    texts: Texts
    mode: Mode
    numbers: Sequence[int]
    begin_s: float
    end_s: float


@dataclass(slots=True)
class ClientCounts:
    """Counts of clients.

    Attributes
    ----------
    num_tokens, num_forwards : tokens and forward passes within the period.
    num_texts, num_different : texts in all, and those that differ from the target's.
    request_s : times from request to text, of texts that ended within the period.
    """

    num_tokens: int = 0
    num_forwards: int = 0
    num_texts: int = 0
    num_different: int = 0
    request_s: tuple[float, ...] = ()
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Draft:
    """The draft server's description of its model."""

    name: str = "free"
    num_mel_bins: int = 80


def warm_up_process(number: int) -> None:
    """Occupy a process of the pool, so that each has loaded its modules."""
    time.sleep(1.0)


def run_in_process(load: Load) -> ClientCounts:
    """Run sessions in this process until the period ends."""
    return asyncio.run(sessions(load))


async def sessions(load: Load) -> ClientCounts:
    """Run sessions until the period ends, in the current event loop."""
    link = TargetLink(load.address, connect_timeout_s=CONNECT_TIMEOUT_S)
    target = await link.describe()
    trace = load.texts.trace(target.vocabulary)

    def place(description: TargetDescription) -> ReplayDraft:
        return ReplayDraft(trace, description.vocabulary, None, num_slots=len(load.numbers))

    recordings = [load.texts.recording(number) for number in range(load.texts.num_recordings)]
    drafting = Drafting(_Draft(), place)  # type: ignore[arg-type]
    started: list[Session] = []
    counts, metrics = ClientCounts(), DraftMetrics(DraftConfig())

    async def client(number: int) -> None:
        for index in cycle(range(number, number + load.texts.num_recordings)):
            index %= load.texts.num_recordings
            request = SessionRequest(OPTIONS, DraftLength(load.mode, GAMMA))
            session = Session(request, link, target, drafting, metrics, resume_timeout_s=0.0)
            started.append(session)
            started_s = time.monotonic()
            async with aclosing(session.run(_audio(recordings[index]))) as updates:
                async for _ in updates:
                    pass
            (written,) = session.builder.finish().window_tokens
            ended_s = time.monotonic()
            if load.begin_s <= ended_s < load.end_s:
                counts.request_s += (ended_s - started_s,)
            counts.num_texts += 1
            counts.num_different += tuple(written) != trace.decodings[index].tokens

    def totals() -> NDArray[np.int64]:
        statistics = [session.builder.statistics for session in started]
        return np.array([[each.num_committed, each.num_forwards] for each in statistics]).sum(axis=0)

    tasks = [asyncio.create_task(client(number)) for number in load.numbers]
    try:
        await sleep_until(load.begin_s)
        before = totals()
        await sleep_until(load.end_s)
        counts.num_tokens, counts.num_forwards = (totals() - before).tolist()
        counts.failures = tuple(repr(task.exception()) for task in tasks if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await drafting.stop()
        await link.close()
    return counts


async def _audio(pcm: bytes) -> AsyncIterator[bytes]:
    yield pcm
