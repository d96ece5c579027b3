"""Clients of a target: sessions of a draft server whose draft costs nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import cycle
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.common.replay.model import ReplayDraft
from experiments.common.replay.trace import Trace
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.drafting import Drafting
from specwhisper_draft_server.link.link import TargetLink
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.session import Session, SessionRequest
from specwhisper_draft_server.transcriber import TargetDescription

CONNECT_TIMEOUT_S = 60.0


class Spoken(NamedTuple):
    """A recording, and the tokens that the target alone writes for each of its windows."""

    name: str
    pcm: bytes
    options: DecodingOptions
    windows: Sequence[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Load:
    """Clients that transcribe recordings in turn, each in an order of its own.

    Attributes
    ----------
    numbers : the numbers of the clients that this process runs.
    gamma : tokens of a block; ``None``: each session chooses, as on a draft server.
    start_s, begin_s, end_s : by the monotonic clock, which all processes share: the clients start between the
        first two, and are counted between the last two.
    """

    address: str
    mode: Mode
    numbers: Sequence[int]
    gamma: int | None
    seed: int
    start_s: float
    begin_s: float
    end_s: float


@dataclass(slots=True)
class Counts:
    """Work of the clients of a process within the counted period.

    Attributes
    ----------
    num_passes : forward passes of each session, of which ``num_verifying`` had candidates of the draft.
    num_texts : texts in all, also before and after the period.
    request_s : times from request to text, of texts that ended within it.
    cpu_s : processor time of the clients' process.
    """

    num_tokens: int = 0
    num_passes: int = 0
    num_verifying: int = 0
    num_verified: int = 0
    num_accepted: int = 0
    num_texts: int = 0
    request_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    differences: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class _FreeDraft(NamedTuple):
    """The draft server's description of its model."""

    name: str = "free"
    num_mel_bins: int = 80


async def run_clients(load: Load, trace: Trace, recordings: Sequence[Spoken]) -> Counts:
    """Run clients until the period ends, with the drafts of a trace."""

    def place(target: TargetDescription) -> ReplayDraft:
        return ReplayDraft(trace, target.vocabulary, None, num_slots=len(load.numbers))

    link = TargetLink(load.address, connect_timeout_s=CONNECT_TIMEOUT_S)
    target = await link.describe()
    drafting = Drafting(_FreeDraft(), place)  # type: ignore[arg-type]
    metrics, counts = DraftMetrics(DraftConfig()), Counts()
    started: list[Session] = []

    async def client(number: int) -> None:
        random = np.random.default_rng((load.seed, number))
        await asyncio.sleep(random.uniform(load.start_s, load.begin_s) - time.monotonic())
        for index in cycle(random.permutation(len(recordings))):
            spoken = recordings[index]
            request = SessionRequest(spoken.options, DraftLength(load.mode, load.gamma))
            session = Session(request, link, target, drafting, metrics, resume_timeout_s=0.0)
            started.append(session)
            started_s = time.monotonic()
            async with aclosing(session.run(_audio(spoken.pcm))) as updates:
                async for _ in updates:
                    pass
            ended_s = time.monotonic()
            if load.begin_s <= ended_s < load.end_s:
                counts.request_s.append(ended_s - started_s)
            counts.num_texts += 1
            if list(map(tuple, session.builder.finish().window_tokens)) != list(spoken.windows):
                counts.differences.append(f"{spoken.name} in {load.mode}: differs from the target alone")

    def totals() -> NDArray[np.int64]:
        found = [_totals(session.builder.statistics) for session in started]
        return np.sum([_totals(SpeculationStatistics()), *found], axis=0)

    tasks = [asyncio.create_task(client(number)) for number in load.numbers]
    try:
        await asyncio.sleep(load.begin_s - time.monotonic())
        before, cpu_s = totals(), time.process_time()
        await asyncio.sleep(load.end_s - time.monotonic())
        counts.cpu_s = time.process_time() - cpu_s
        spent = (totals() - before).tolist()
        counts.num_tokens, counts.num_passes, counts.num_verifying = spent[:3]
        counts.num_verified, counts.num_accepted = spent[3:]
        ended = ((number, task) for number, task in zip(load.numbers, tasks, strict=True) if task.done())
        counts.failures = [f"client {number}: {task.exception()!r}" for number, task in ended]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await drafting.stop()
        await link.close()
    return counts


def _totals(each: SpeculationStatistics) -> tuple[int, ...]:
    passes = each.num_committed, each.num_forwards, sum(each.acceptance_histogram)
    return *passes, each.num_verified, each.num_accepted


async def _audio(pcm: bytes) -> AsyncIterator[bytes]:
    yield pcm
