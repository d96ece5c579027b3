"""Promises of target and draft servers in time and memory, to clients that leave, flood or do not read."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import grpc
import grpc.aio
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

from experiments.common.bench.program import Program
from experiments.common.bench.report import Bar, at_most, none
from experiments.common.bench.stats import ratio_of_medians, spread
from experiments.common.servers.forked import ForkedServer
from experiments.faults import silence
from experiments.faults.clients import (
    NO_PROXY,
    TAKES_LITTLE,
    Client,
    FileRequest,
    LiveRequest,
    all_begun,
    bare_call,
    first_request,
    recorded,
    run_all,
    status_of,
    violations_of,
)
from experiments.faults.report import Result
from experiments.faults.servers import POLL_S, WITHIN_S, Behaviour, Peak, Servers, until
from specwhisper.engine.process import FAULT_STATUS
from specwhisper.errors import InvalidAudio, SpecWhisperError, TargetUnavailable
from specwhisper.live import LiveOptions
from specwhisper.rpc.channels import with_true_status
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper.types import Mode
from specwhisper.wire.status import PUSHBACK_KEY
from specwhisper.wire.v1 import transcription_pb2, verification_pb2
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.api import TranscriptionClient
from specwhisper_draft_server.config import DraftConfig

MAX_FREE_S = 1.0  # from the loss of a client until servers hold nothing for it
LENGTH_S = 120.0
VERIFICATION = verification_pb2.DESCRIPTOR.services_by_name["Verification"].full_name


async def measure_cancel(run: Program) -> Result:
    """Leave a session in every state, and wait until both servers hold nothing for it."""
    leave: dict[str, Callable[[Servers], Any]] = {
        "queue": _leave_in_queue,
        "encode": partial(_leave_while, Mode.TARGET_ONLY, 0, "is_encoding"),
        "draft": partial(_leave_while, Mode.SYNC, 1, "is_scoring"),
        "verify": partial(_leave_while, Mode.FULL, 0, "is_scoring"),
    }
    took_s: dict[str, list[float]] = {where: [] for where in (*leave, "an answer waits")}
    async with Servers() as servers:
        await servers.pair(pass_ms=100.0, behaviour=Behaviour(encode_ms=300.0), of_draft={"pass_ms": 100.0})
        for where in list(leave) * run.choose(1, 20):
            await servers.idle()
            took_s[where].append(await leave[where](servers))
    async with Servers() as servers:
        await servers.pair(pass_ms=0.0)  # soon fills the buffers before its client
        for _ in range(run.choose(1, 20)):
            await servers.idle()
            took_s["an answer waits"].append(await _leave_while_an_answer_waits(servers))
    bars = [at_most(f"free after a cancel ({where}), s", took_s[where], MAX_FREE_S) for where in took_s]
    return Result(bars, took_s)


async def _cancelled(servers: Servers, *calls: Any, most: int = 0) -> float:
    for call in calls:
        call.cancel()
    return await servers.wait_held(most)


async def _leave_in_queue(servers: Servers) -> float:
    num_queued = 6
    target, draft = servers.all
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(bare_call(draft.address, Mode.TARGET_ONLY, length_s=600.0))
        await until(target, "is_scoring")
        before = await servers.num_held()
        waiting = [
            await stack.enter_async_context(bare_call(draft.address, Mode.TARGET_ONLY))
            for _ in range(num_queued)
        ]
        await until(draft, "sessions", at_least=num_queued + 1)
        return await _cancelled(servers, *waiting, most=before)


async def _leave_while(mode: Mode, server: int, probe: str, servers: Servers) -> float:
    async with bare_call(servers.all[1].address, mode, length_s=65.0) as call:
        await until(servers.all[server], probe)
        return await _cancelled(servers, call)


async def _leave_while_an_answer_waits(servers: Servers) -> float:
    """Read nothing until the model has been idle for a while, as every buffer is full."""
    target, draft = servers.all
    call = bare_call(draft.address, Mode.TARGET_ONLY, length_s=600.0, reads=False, options=TAKES_LITTLE)
    async with call as opened:
        await until(target, "is_scoring")
        since_s = monotonic()
        while monotonic() - since_s < 0.5:
            if any((await target.probe("is_scoring", "is_encoding")).values()):
                since_s = monotonic()
            await asyncio.sleep(POLL_S)
        return await _cancelled(servers, opened)


async def measure_flood(run: Program) -> Result:
    """Fill a draft server with live sessions, and ask it for ten times as many."""
    capacity, times, pause_s = 8, 10, 0.5
    floods = run.choose(3, 15)
    alone_s: list[float] = []
    answers: list[tuple[float, bool]] = []
    wrong: list[str] = []
    async with Servers() as servers:
        _, draft = await servers.pair(of_draft={"max_sessions": capacity})
        async with grpc.aio.insecure_channel(draft.address, options=(NO_PROXY,)) as channel:
            await channel.channel_ready()
            stub = TranscriptionStub(channel)
            while len(alone_s) < floods:
                # Staggered, so that their steps do not coincide.
                begins_s = [number * LiveOptions().step_ms / 1_000 / capacity for number in range(capacity)]
                speakers = [Client(LiveRequest(speed=1.0, start_after_s=at), run.folder) for at in begins_s]
                running = asyncio.create_task(run_all(speakers, draft.address))
                await all_begun(speakers)
                for _ in range(min(3, floods - len(alone_s))):
                    asked = [transcription_pb2.GetModelRequest()] * times * capacity
                    began_s = monotonic()
                    await asyncio.gather(*map(stub.GetModel, asked))
                    alone_s.append(monotonic() - began_s)
                    await asyncio.sleep(pause_s)
                    answers += await asyncio.gather(*(_open(stub) for _ in asked))
                    await asyncio.sleep(pause_s)
                wrong += violations_of(await running)
    answers_s = [took_s for took_s, _ in answers]
    median_s, p99_s = np.quantile(answers_s, (0.5, 0.99))
    alone = float(np.median(alone_s))
    shown = f"{p99_s:.3f}, median {median_s:.3f}, of {len(answers)}; as many calls for the models {alone:.3f}"
    num_other = sum(not is_refused for _, is_refused in answers)
    bars = [
        Bar(f"a flood of {times}x the capacity is answered, p99, s", p99_s, 3 * alone + 0.05, shown),
        none("opens that were not refused with a pushback", num_other),
        none("errors of sessions beside a flood", len(wrong)),
    ]
    return Result(bars, {"alone_s": alone_s, "answers_s": answers_s}, wrong)


async def _open(stub: TranscriptionStub) -> tuple[float, bool]:
    began_s = monotonic()
    call = with_true_status(stub.StreamingRecognize())
    with suppress(grpc.aio.AioRpcError):  # the call may be refused before the first write
        await call.write(first_request())
    code, trailing = await status_of(call)
    took_s = monotonic() - began_s
    return took_s, code is grpc.StatusCode.RESOURCE_EXHAUSTED and PUSHBACK_KEY in trailing


async def measure_resets(run: Program) -> Result:
    """Reset connections that open sessions while others run; measure when servers are free again."""
    num, at_once, wait_every, num_opened = run.choose(300, 2_000), 16, 4, 0
    async with Servers() as servers:
        _, draft = await servers.pair()
        proxy = await servers.proxy(draft.address)
        requests = (LiveRequest(speed=2.0), LiveRequest(speed=2.0), FileRequest(2 * LENGTH_S))
        clients = [Client(request, run.folder) for request in requests]
        running = asyncio.create_task(run_all(clients, draft.address))
        await all_begun(clients)
        for batch in range(0, num, at_once):
            async with AsyncExitStack() as stack:
                for _ in range(min(at_once, num - batch)):
                    with suppress(grpc.aio.AioRpcError):  # refused: a busy server still frees those before
                        await stack.enter_async_context(bare_call(proxy.address))
                        num_opened += 1
                if batch % (wait_every * at_once) == 0:
                    await until(draft, "sessions", at_least=1)
                proxy.reset()
        free_s = [await servers.wait_held(3 * len(clients))]
        wrong = violations_of(await running)
        free_s.append(await servers.wait_held())
    bars = [
        at_most(f"free after {proxy.num_reset} reset connections, s", free_s, MAX_FREE_S),
        none("connections that could not be reset", max(0, num_opened - proxy.num_reset), num),
        none("errors of sessions beside resets", len(wrong), len(clients)),
    ]
    return Result(bars, {"free_s": free_s}, wrong)


async def measure_slow_reader(run: Program) -> Result:
    """Run sessions beside a client that does not read, and without it, in random order.

    Each runs for longer than the server waits for a client that does not read.
    """
    idle_timeout_s, rounds = run.choose(1.0, ServingOptions().idle_timeout_s), run.choose(2, 5)
    stuck_s = 2.0  # by then a client that reads nothing has taken all it takes
    random = Random(run.seed)
    gaps_s: dict[bool, list[float]] = {False: [], True: []}  # beside it, or not
    statuses: list[str] = []
    wrong: list[str] = []
    async with Servers() as servers:
        _, draft = await servers.pair(of_draft={"idle_timeout_s": idle_timeout_s})
        await _run_for(stuck_s, draft.address, run.folder)  # warms up
        for _ in range(rounds):
            for is_beside in random.sample([False, True], 2):
                await servers.idle()
                async with AsyncExitStack() as stack:
                    if is_beside:
                        stuck = bare_call(
                            draft.address, Mode.FULL, length_s=300.0, reads=False, options=TAKES_LITTLE
                        )
                        call = await stack.enter_async_context(stuck)
                    others = await _run_for(idle_timeout_s + stuck_s, draft.address, run.folder)
                    if is_beside:
                        await servers.wait_held()  # it has been ended by then
                        code, _ = await status_of(call)
                        statuses.append(code.name)
                gaps = [gap for client in others for gap in client.log.gaps_s]
                gaps_s[is_beside].append(float(np.quantile(gaps, 0.99)))
                wrong += violations_of(others)
    ratio = ratio_of_medians(gaps_s[True], gaps_s[False], seed=run.seed)
    shown = f"{ratio.value - 1:+.0%} (95 %: {ratio.low - 1:+.0%} to {ratio.high - 1:+.0%})"
    without, beside = (spread([1_000 * gap for gap in gaps]) for gaps in gaps_s.values())
    num_other = sum(status != grpc.StatusCode.RESOURCE_EXHAUSTED.name for status in statuses)
    name = f"times between commits beside a reader that is ended after {idle_timeout_s:g} s, p99"
    bars = [
        Bar(name, ratio.value, 1.2, f"{shown}, {without:.0f} ms without it, {beside:.0f} ms beside it"),
        none("slow readers that were not ended so", num_other, len(statuses)),
        none("errors of sessions beside a slow reader", len(wrong)),
    ]
    return Result(bars, {"without_s": gaps_s[False], "beside_s": gaps_s[True]}, wrong)


async def _run_for(lasts_s: float, address: str, folder: Path) -> list[Client]:
    clients: list[Client] = []
    until_s = monotonic() + lasts_s

    async def one_by_one(seed: int) -> None:
        while monotonic() < until_s:
            clients.append(Client(FileRequest(60.0, seed), folder))
            await clients[-1].run(address)

    await asyncio.gather(*map(one_by_one, range(3)))
    return clients


async def measure_bombs(run: Program) -> Result:
    """Send small files of hours to a draft server that has decoded every kind of file before."""
    max_audio_s, times_longer = run.choose((10.0, 24.0), (DraftConfig().max_audio_s, 1.5))
    makes = {
        "FLAC": silence.flac,
        "FLAC of 8 channels": silence.flac_of_8_channels,
        "Opus": silence.opus,
        "MP3": silence.mp3,
    }
    options = FileRequest(1.0).options
    growths: dict[str, list[float]] = {}
    num_taken = 0
    async with Servers() as servers:
        _, draft = await servers.pair(pass_ms=0.0, of_draft={"max_audio_s": max_audio_s})
        async with TranscriptionClient(draft.address) as client:
            for make in makes.values():
                await client.recognize(make(1.0), options)
            for kind, make in makes.items():
                data = await asyncio.to_thread(make, times_longer * max_audio_s)
                of_size = growths.setdefault(f"{kind} of {len(data) / 1_000:.0f} kB", [])
                for _ in range(run.choose(1, 2)):
                    peak = Peak(draft.pid)
                    num_taken += 1
                    try:
                        await client.recognize(data, options)
                    except InvalidAudio:
                        num_taken -= 1
                    except SpecWhisperError:
                        pass
                    of_size.append(peak.growth_mib())
    most = max(growths, key=lambda kind: max(growths[kind]))
    name = f"growth of a draft server that takes {max_audio_s:g} s of audio and is sent a bomb, MiB"
    bars = [
        at_most(name, growths[most], 64, f"at most, by {most}"),
        none("bombs that were not refused as such", num_taken, sum(map(len, growths.values()))),
    ]
    return Result(bars, growths)


async def measure_stops(run: Program) -> Result:
    """Stop a target that has a spare, and a draft server, each with sessions under way."""
    notice_s, wrong = [], list[str]()
    num_bad = num_sessions = 0
    for server in (0, 1) * run.choose(1, 10):
        async with Servers() as servers:
            pair = await servers.pair(has_spare=True)
            requests = (FileRequest(LENGTH_S), FileRequest(LENGTH_S, 1), LiveRequest(speed=2.0))
            clients = [Client(request, run.folder) for request in requests]
            running = asyncio.create_task(run_all(clients, pair[1].address))
            await all_begun(clients)
            notice_s.append(await _notice_s(pair[server]))
            wrong += violations_of(await running)
            await pair[server].ended()
            num_bad += pair[server].exit_status != 0
            num_sessions += len(clients)
    bars = [
        at_most("SIGTERM to NOT_SERVING, s", notice_s, 0.5),
        none("servers whose exit status was not 0", num_bad, len(notice_s)),
        none("sessions lost as a server stopped", len(wrong), num_sessions),
    ]
    return Result(bars, {"notice_s": notice_s}, wrong)


async def _notice_s(server: ForkedServer) -> float:
    """Send SIGTERM; return the time until health reports it, or until no call is taken any more."""
    status = health_pb2.HealthCheckResponse
    async with grpc.aio.insecure_channel(server.address, options=(NO_PROXY,)) as channel:
        check = partial(health_pb2_grpc.HealthStub(channel).Check, health_pb2.HealthCheckRequest())
        if (await check()).status != status.SERVING:
            raise TargetUnavailable(f"{server.name} does not serve before it is stopped.")
        signalled_s = monotonic()
        server.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(WITHIN_S):
                while (await check()).status != status.NOT_SERVING:
                    await asyncio.sleep(POLL_S)
        except grpc.aio.AioRpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                raise
        return monotonic() - signalled_s


async def measure_faults(run: Program) -> Result:
    """Lose devices, and exhaust the memory of forward passes and of hosts that receive audio."""
    rounds = run.choose(1, 10)
    exits = [
        await _lose_device(run.folder / f"{of_draft}-{number}", of_draft=of_draft)
        for number in range(rounds)
        for of_draft in (False, True)
    ]
    exit_s = [took_s for took_s, _, _ in exits]
    num_bad = sum(status != FAULT_STATUS for _, status, _ in exits)
    wrong = [line for _, _, lines in exits for line in lines]
    bars = [
        at_most("device fault to the end of the process, s", exit_s, 1.0),
        none(f"exit statuses other than {FAULT_STATUS}", num_bad, len(exits)),
        none("texts that a device fault changed", len(wrong)),
    ]
    figures: dict[str, Any] = {"exit_s": exit_s}
    for where, behaviour, has_spare in (
        ("in a forward pass", Behaviour(no_memory_every=15), False),
        ("for what is received", Behaviour(no_memory_to_receive_every=40), True),
    ):
        gaps_s, num_times, changed = [], 0, list[str]()
        for _ in range(rounds):
            async with Servers() as servers:
                target, draft = await servers.pair(behaviour=behaviour, has_spare=has_spare)
                clients = await run_all(recorded(3, LENGTH_S, run.folder), draft.address)
                num_times += (await target.probe("num_short"))["num_short"]
            gaps_s += [gap for client in clients for gap in client.log.gaps_s]
            changed += violations_of(clients)
        if not num_times:
            changed.append(f"memory was never exhausted {where}")
        bars += [
            at_most(f"pause without memory {where}, s", gaps_s, 3.0, "at most"),
            none(f"texts changed without memory {where}", len(changed), note=f"{num_times} times"),
        ]
        figures[where] = max(gaps_s)
        wrong += changed
    return Result(bars, figures, wrong)


async def _lose_device(moment: Path, *, of_draft: bool) -> tuple[float, int | None, list[str]]:
    """Lose the device of a server beside which another one runs; return its time to end, and its status."""
    faulty = {"behaviour": Behaviour(fault_at=40, fault_file=moment)}
    clients = recorded(3, LENGTH_S, moment.parent)
    async with Servers() as servers:
        if of_draft:
            target, lost = await servers.pair(of_draft=faulty)
            spare, proxy = await servers.draft(target.address), await servers.proxy()
            running = asyncio.create_task(run_all(clients, f"{lost.address},{proxy.address}"))
            await lost.ended()
            proxy.upstream = spare.address  # all sessions began at the other one
        else:
            lost, draft = await servers.pair(has_spare=True, **faulty)
            running = asyncio.create_task(run_all(clients, draft.address))
            await lost.ended()
        await running
        exit_s = (lost.ended_s or 0.0) - float(moment.read_text())
        return exit_s, lost.exit_status, violations_of(clients)
