"""``crowd``: what Python costs a target with many sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Annotated

import grpc.aio
import numpy as np
import typer
from rich.progress import track
from rich.table import Table

from experiments.capacity.recited import PROBES, RECITED, RecitedDraft, RecitedSettings, serve_recited
from experiments.common.bench.program import Program, Rounds, at_least, parse_levels, parse_list, program
from experiments.common.bench.report import Bar
from experiments.common.bench.stats import spread
from experiments.common.servers.forked import ForkedServer
from experiments.common.servers.processes import first_two_cores, on_cores
from specwhisper.options import DecodingOptions
from specwhisper.types import AudioChunk, Candidates, Mode, ToTarget
from specwhisper.wire import PROTOCOL_VERSION, codec
from specwhisper.wire.v1 import verification_pb2 as pb
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_draft_server.link.candidate_channel import CandidateChannel
from specwhisper_draft_server.link.grpc_target_stream import PIECE_BYTES

OPTIONS = DecodingOptions.greedy(language="en", timestamps=False)
WARM_UP_S = 1.0
NUM_DRAFT_SERVERS = {"one draft server": 1, "four draft servers": 4}
MAX_SESSION_US, MAX_MESSAGE_US, MAX_PASS_MS = 15, 40, 1.0  # the bars, the last one of 64 sessions


@dataclass(frozen=True, slots=True)
class Figures:
    """One run of an arm.

    Attributes
    ----------
    batch_size : sessions in a forward pass.
    num_tokens : committed for each session in one.
    session_us : processor time of the engine's thread between two forward passes, for each session in them.
    p95_ms : 95th percentile of that time for a forward pass.
    message_us : processor time of the server outside that thread, for each message.
    """

    where: str
    num_sessions: int
    pass_ms: float
    num_passes: int
    batch_size: float
    num_tokens: float
    tokens_per_s: float
    session_us: float
    p95_ms: float
    message_us: float
    messages_per_s: float


MEASURED = tuple(field.name for field in fields(Figures))[3:]


@program
def crowd(
    given: Program,
    sessions: Annotated[str, typer.Option(help="Numbers of sessions.")] = "8,32,64,128",
    pass_ms: Annotated[str, typer.Option(help="Times of a forward pass, in ms.")] = "1,4",
    period: Annotated[float, typer.Option(min=0.5, help="Seconds that are measured.")] = 3.0,
    rounds: Rounds = 5,
) -> None:
    """Run sessions on a server whose model only sleeps; count processor time.

    Each session receives a commit in every forward pass and answers it with a block of candidates. The server
    has a core, clients and drafts another. The sessions of a draft server share a call for candidates.
    """
    levels = parse_levels(sessions)
    passes = parse_list(pass_ms, "--pass-ms", at_least(0, float), "times")
    if given.quick:
        levels, passes, period, rounds = (8, 64), [1.0], 2.0, 2
    arms = [(where, n, ms) for where in NUM_DRAFT_SERVERS for n in levels for ms in passes]
    random = np.random.default_rng(given.seed)
    runs: list[Figures] = []
    for _ in track(range(rounds), console=given.console, transient=True):
        for index in random.permutation(len(arms)):
            runs.append(asyncio.run(measure(*arms[int(index)], period)))
    table = Table(
        *("", "sessions", "pass, ms", "in a pass", "tokens each", "tokens a second"),
        *("µs a session and pass", "Python of a pass, p95 ms", "µs a message", "messages a second"),
        title="Medians, and quartiles in parentheses",
    )
    bars = []
    for arm in arms:
        own = [run for run in runs if (run.where, run.num_sessions, run.pass_ms) == arm]
        found = {name: spread([getattr(run, name) for run in own]) for name in MEASURED}
        where, n, ms = arm
        table.add_row(
            *(where, str(n), f"{ms:g}", f"{found['batch_size'].median:.1f}"),
            *(f"{found['num_tokens'].median:.1f}", f"{found['tokens_per_s'].median:,.0f}"),
            *(f"{found['session_us']:.0f}", f"{found['p95_ms']:.1f}", f"{found['message_us']:.0f}"),
            f"{found['messages_per_s'].median:,.0f}",
        )
        name = f"{where}, {n} sessions, {ms:g} ms"
        judged = [
            ("µs a session and pass", "session_us", MAX_SESSION_US),
            ("µs a message", "message_us", MAX_MESSAGE_US),
            *([("p95 of a pass's Python in ms", "p95_ms", MAX_PASS_MS)] if n == 64 else []),
        ]
        for what, key, bound in judged:
            bars.append(Bar(f"{what}, {name}", found[key].median, bound, f"{found[key]:.2f}"))
    given.console.print(table)
    given.end({"target": "recited"}, {"runs": [asdict(run) for run in runs]}, bars)


async def measure(where: str, num_sessions: int, pass_ms: float, period_s: float) -> Figures:
    target_core, clients_core = first_two_cores()
    server = ForkedServer(serve_recited, RecitedSettings(num_sessions, pass_ms, target_core))
    try:
        with on_cores([clients_core]):
            clients = Reciters(await server.ready(), num_sessions, NUM_DRAFT_SERVERS[where])
            await clients.begin()
            await clients.run(WARM_UP_S)
            await server.probe("restart")
            before = clients.num_messages
            await clients.run(period_s)
            num_messages = clients.num_messages - before
            found = await server.probe(*PROBES)
            await clients.close()
    finally:
        await server.kill()
    return Figures(
        where,
        num_sessions,
        pass_ms,
        num_passes=found["num_passes"],
        batch_size=found["num_rows"] / found["num_passes"],
        num_tokens=found["num_tokens"] / found["num_rows"],
        tokens_per_s=found["num_tokens"] / period_s,
        session_us=found["python_ns"] / found["num_rows"] / 1e3,
        p95_ms=found["p95_python_ns"] / 1e6,
        message_us=(found["process_ns"] - found["engine_ns"]) / num_messages / 1e3,
        messages_per_s=num_messages / period_s,
    )


class Reciters:
    """Sessions on one server, as many as it has slots, without a draft server around them.

    Attributes
    ----------
    num_messages : sent and received so far.
    """

    def __init__(self, address: str, num_sessions: int, num_draft_servers: int) -> None:
        self.num_messages = 0
        self._num_sessions = num_sessions
        self._channel = grpc.aio.insecure_channel(address, [("grpc.enable_http_proxy", 0)])
        self._stub = verification_pb2_grpc.VerificationStub(self._channel)
        self._calls = [CandidateChannel(address, self._stub) for _ in range(num_draft_servers)]
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        self._tasks = [asyncio.create_task(self._recite(number)) for number in range(self._num_sessions)]

    async def run(self, duration_s: float) -> None:
        done, _ = await asyncio.wait(self._tasks, timeout=duration_s, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()

    async def _recite(self, number: int) -> None:
        draft, outbox = RecitedDraft(number, PIECE_BYTES // 2), asyncio.Queue[pb.VerifyRequest]()
        call, reciter = self._calls[number % len(self._calls)], _Reciter()
        reciter.number = call.join(reciter)
        hello = pb.Hello(
            protocol_version=PROTOCOL_VERSION,
            vocabulary_digest=RECITED.digest,
            mode=codec.mode_to_proto(Mode.FULL),
            decoding=codec.decoding_options_to_proto(OPTIONS),
            share_key=call.key,
            share_number=reciter.number,
        )
        outbox.put_nowait(pb.VerifyRequest(hello=hello))

        async def requests() -> AsyncIterator[pb.VerifyRequest]:
            with suppress(asyncio.CancelledError):
                while True:
                    yield await outbox.get()
                    self.num_messages += 1

        def send(messages: list[ToTarget]) -> None:
            for message in messages:
                if isinstance(message, Candidates):
                    call.blocks.put_nowait((reciter.number, message))
                    self.num_messages += 1
                elif isinstance(message, AudioChunk):
                    outbox.put_nowait(pb.VerifyRequest(audio=codec.audio_chunk_to_proto(message)))

        own = aiter(self._stub.Verify(requests()))
        await anext(own)  # the welcome
        reading = asyncio.create_task(_read_all(own))
        try:
            send(draft.begin())
            while True:
                event = await reciter.received.get()
                self.num_messages += 1
                if isinstance(event, Exception):
                    raise event
                match event.WhichOneof("message"):
                    case "window_opened":
                        send(draft.answer(codec.window_opened_from_proto(event.window_opened)))
                    case "commit":
                        send(draft.answer(codec.commit_from_proto(event.commit)))
                    case _:
                        return
        finally:
            reading.cancel()
            call.leave(reciter.number)


class _Reciter:
    """A session of a call for candidates."""

    def __init__(self) -> None:
        self.number = 0
        self.received: asyncio.Queue[pb.SharedEvent | Exception] = asyncio.Queue()

    def receive(self, event: pb.SharedEvent | Exception) -> None:
        self.received.put_nowait(event)


async def _read_all(responses: AsyncIterator[pb.VerifyResponse]) -> None:
    async for _ in responses:
        pass
