"""Failing devices and exhausted memory: effects on process and sessions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from experiments.chaos.clients import Client
from experiments.common.bench.report import Bar
from experiments.common.network.proxy import Proxy
from experiments.common.serve_scripted import DraftSettings, serve_draft
from experiments.common.servers.forked import ForkedServer
from experiments.promises.servers import SPARE, TARGET, Behaviour, Pair, running_pair
from experiments.promises.sessions import recorded, violations_of
from specwhisper.model.faults import FAULT_STATUS

MAX_EXIT_S = 1.0
MAX_PAUSE_S = 3.0
LENGTH_S = 120.0
GOOD_PASSES, NO_MEMORY_EVERY, NO_MEMORY_TO_RECEIVE_EVERY = 40, 15, 40


@dataclass(frozen=True, slots=True)
class Faulted:
    """Outcome of a device fault.

    Attributes
    ----------
    exit_s : time from the fault to the end of the process.
    """

    exit_s: float
    exit_status: int | None
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Short:
    """Outcome of repeated exhaustion of memory.

    Attributes
    ----------
    num_times : how often memory was exhausted.
    longest_pause_s : longest time between two commits of a session.
    """

    num_sessions: int
    num_times: int
    longest_pause_s: float
    wrong: tuple[str, ...]


async def measure_faults(rounds: int, folder: Path) -> list[Faulted]:
    """Lose the device of a target that has a spare."""
    found = []
    for number in range(rounds):
        moment = folder / f"fault-{number}"
        faulty = (TARGET, Behaviour(fault_at=GOOD_PASSES, fault_file=moment))
        async with running_pair(faulty, (SPARE, Behaviour())) as pair:
            sessions = await _run_all(pair.draft.address, folder)
            await pair.targets[0].ended()
            ended_s = pair.targets[0].ended_s or 0.0
            exit_s = ended_s - float(moment.read_text())
            found.append(Faulted(exit_s, pair.targets[0].exit_status, violations_of(sessions)))
    return found


async def measure_draft_faults(rounds: int, folder: Path) -> list[Faulted]:
    """Lose the device of a draft server; sessions resume at another one."""
    found = []
    for number in range(rounds):
        moment = folder / f"draft-fault-{number}"
        faulty = Behaviour(fault_at=GOOD_PASSES, fault_file=moment)
        async with running_pair((TARGET, Behaviour()), draft=faulty) as pair, Proxy.listening() as proxy:
            settings = DraftSettings(pair.targets[0].address)
            spare = ForkedServer(serve_draft, settings)
            try:
                address = await spare.ready()
                running = asyncio.create_task(_run_all(f"{pair.draft.address},{proxy.address}", folder))
                await pair.draft.ended()
                proxy.upstream = address  # all sessions began at the other one
                sessions = await running
            finally:
                await spare.kill()
            exit_s = (pair.draft.ended_s or 0.0) - float(moment.read_text())
            found.append(Faulted(exit_s, pair.draft.exit_status, violations_of(sessions)))
    return found


async def measure_no_memory(rounds: int, folder: Path) -> list[Short]:
    """Exhaust the memory of a target without a spare in every n-th forward pass."""
    found = []
    for _ in range(rounds):
        async with running_pair((TARGET, Behaviour(no_memory_every=NO_MEMORY_EVERY))) as pair:
            sessions = await _run_all(pair.draft.address, folder)
            found.append(await _short(sessions, pair))
    return found


async def measure_no_memory_to_receive(rounds: int, folder: Path) -> list[Short]:
    """Exhaust the host memory of a target with a spare for every n-th piece of audio."""
    found = []
    for _ in range(rounds):
        short = Behaviour(no_memory_to_receive_every=NO_MEMORY_TO_RECEIVE_EVERY)
        async with running_pair((TARGET, short), (SPARE, Behaviour())) as pair:
            sessions = await _run_all(pair.draft.address, folder)
            found.append(await _short(sessions, pair))
    return found


def bars(faulted: list[Faulted], short: list[Short], receiving: list[Short]) -> list[Bar]:
    """Return the bars; ``receiving`` had no memory for received messages."""
    exit_s = max(one.exit_s for one in faulted)
    num_bad = sum(one.exit_status != FAULT_STATUS for one in faulted)
    num_wrong = sum(len(one.wrong) for one in faulted)
    return [
        Bar("device fault to the end of the process, s", exit_s, MAX_EXIT_S, f"{exit_s:.2f} at most"),
        Bar(f"exit statuses other than {FAULT_STATUS}", num_bad, 1, f"{num_bad} of {len(faulted)}"),
        Bar("texts that a device fault changed", num_wrong, 1, f"{num_wrong}"),
        *_memory_bars("in a forward pass", short),
        *_memory_bars("for what is received", receiving),
    ]


def _memory_bars(where: str, short: list[Short]) -> list[Bar]:
    pause_s = max(one.longest_pause_s for one in short)
    num_wrong = sum(len(one.wrong) for one in short)
    num_calm = sum(not one.num_times for one in short)  # runs that measured nothing
    num_times = sum(one.num_times for one in short)
    return [
        Bar(f"pause without memory {where}, s", pause_s, MAX_PAUSE_S, f"{pause_s:.2f} at most"),
        Bar(
            f"texts changed without memory {where}",
            num_wrong + num_calm,
            1,
            f"{num_wrong}; {num_times} times",
        ),
    ]


async def _short(sessions: list[Client], pair: Pair) -> Short:
    num_times = (await pair.targets[0].probe("num_short"))["num_short"]
    longest_s = max(gap for session in sessions for gap in session.log.gaps_s)
    return Short(len(sessions), num_times, longest_s, violations_of(sessions))


async def _run_all(address: str, folder: Path) -> list[Client]:
    sessions = [Client(recorded(LENGTH_S, seed), folder) for seed in range(3)]
    await asyncio.gather(*(session.run(address) for session in sessions))
    return sessions
