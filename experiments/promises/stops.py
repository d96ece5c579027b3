"""Servers that stop in order under running sessions: how soon health reports it, and what is lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from experiments.chaos.clients import Client
from experiments.common.bench.report import Bar
from experiments.common.servers.forked import ForkedServer
from experiments.promises.servers import POLL_S, SPARE, TARGET, WITHIN_S, Behaviour, running_pair
from experiments.promises.sessions import NO_PROXY, all_begun, recorded, spoken, violations_of
from specwhisper.errors import TargetUnavailable

MAX_NOTICE_S = 0.5
LENGTH_S = 120.0
ASKED = health_pb2.HealthCheckRequest()
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
HAS_STOPPED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


@dataclass(frozen=True, slots=True)
class Stopped:
    """Outcome of one stopped server.

    Attributes
    ----------
    notice_s : from the signal until health no longer reports "serving".
    num_orphans : processes that it left running.
    wrong : violations of its sessions.
    """

    server: str
    notice_s: float
    exit_status: int | None
    num_orphans: int
    num_sessions: int
    wrong: tuple[str, ...]


async def measure_stops(rounds: int, folder: Path) -> list[Stopped]:
    """Stop a target that has a spare, and a draft server, each with sessions under way."""
    found = []
    for _ in range(rounds):
        for server in ("target", "draft server"):
            async with running_pair((TARGET, Behaviour()), (SPARE, Behaviour())) as pair:
                stopped = pair.targets[0] if server == "target" else pair.draft
                found.append(await _stop(server, stopped, pair.draft.address, folder))
    return found


def bars(stopped: list[Stopped]) -> list[Bar]:
    """Hold them against the bar."""
    notice_s = max(one.notice_s for one in stopped)
    num_bad = sum(one.exit_status != 0 for one in stopped)
    num_orphans = sum(one.num_orphans for one in stopped)
    num_sessions, num_lost = sum(one.num_sessions for one in stopped), sum(len(one.wrong) for one in stopped)
    return [
        Bar(
            "SIGTERM to NOT_SERVING, s",
            notice_s,
            MAX_NOTICE_S,
            f"{notice_s:.3f} at most of {len(stopped)}",
        ),
        Bar("servers whose exit status was not 0", num_bad, 1, f"{num_bad} of {len(stopped)}"),
        Bar("sessions lost as a server stopped", num_lost, 1, f"{num_lost} of {num_sessions}"),
        Bar("orphaned processes", num_orphans, 1, f"{num_orphans}"),
    ]


def processes_of(session: int) -> Iterator[int]:
    """Return the processes of a POSIX session: all that a server started, orphans too."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of_session, *_ = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        if int(of_session) == session and state != "Z":
            yield int(stat.parent.name)


async def _serves(health: health_pb2_grpc.HealthStub) -> bool:
    """Ask whether a server serves; one that takes no question any more, since it was soon done, does not."""
    try:
        return (await health.Check(ASKED)).status != NOT_SERVING
    except grpc.aio.AioRpcError as error:
        if error.code() in HAS_STOPPED:
            return False
        raise


async def _stop(name: str, server: ForkedServer, address: str, folder: Path) -> Stopped:
    asked = (recorded(LENGTH_S), recorded(LENGTH_S, 1), spoken())
    sessions = [Client(each, folder) for each in asked]
    running = [asyncio.create_task(session.run(address)) for session in sessions]
    await all_begun(sessions)
    async with grpc.aio.insecure_channel(server.address, options=(NO_PROXY,)) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        if (await health.Check(ASKED)).status != SERVING:
            raise TargetUnavailable(f"The {name} at {server.address} does not serve before it is stopped.")
        signalled_s = monotonic()
        server.signal(signal.SIGTERM)
        async with asyncio.timeout(WITHIN_S):
            while await _serves(health):
                await asyncio.sleep(POLL_S)
        notice_s = monotonic() - signalled_s
    await asyncio.gather(*running)
    await server.ended()
    num_orphans = len(list(processes_of(server.pid)))
    return Stopped(name, notice_s, server.exit_status, num_orphans, len(sessions), violations_of(sessions))
