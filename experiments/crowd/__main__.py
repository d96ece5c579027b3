"""``python -m experiments.crowd``: what Python costs a target with many sessions."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import typer
from rich.progress import track
from rich.table import Table

from experiments.common.bench.options import Check, JsonFile, Quick, Seed, parse_levels
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.bench.stats import spread
from experiments.common.servers.forked import ForkedServer
from experiments.common.servers.processes import first_two_cores, on_cores
from experiments.crowd.clients import Generator
from experiments.crowd.in_process import run_engine
from experiments.crowd.serve import PROBES, ServerSettings, serve_recited
from specwhisper.errors import SpecWhisperError

WARM_UP_S = 1.0
NS_PER_US, NS_PER_MS = 1e3, 1e6
NUM_SHARED = {"own streams": 0, "one draft server": 1, "four draft servers": 4}  # streams that are shared


@dataclass(frozen=True, slots=True)
class Figures:
    """One run of an arm.

    Attributes
    ----------
    batch_size : sessions in a forward pass.
    num_tokens : committed for each session in one.
    session_us : CPU time of the engine's thread between two forward passes, for each session in them.
    p95_ms, p95_gap_ms : 95th percentiles of that time for a forward pass, and of the wall time.
    message_us : CPU time of the server outside that thread, for each message; 0 without a server.
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
    p95_gap_ms: float
    message_us: float = 0.0
    messages_per_s: float = 0.0


def crowd(
    sessions: Annotated[str, typer.Option(help="Numbers of sessions.")] = "8,32,64,128",
    pass_ms: Annotated[str, typer.Option(help="Times of a forward pass, in ms.")] = "1,4",
    period: Annotated[float, typer.Option(min=0.5, help="Seconds that are measured.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is repeated.")] = 5,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Run sessions whose model only sleeps, in the engine alone and on a server; count CPU time.

    Each session receives a commit in every forward pass and answers it with a block of candidates. The server
    has a core, clients and drafts another. The sessions of a draft server share a stream, but for its first.
    """
    console = open_console()
    levels, passes = parse_levels(sessions), [float(word) for word in pass_ms.split(",")]
    if quick:
        levels, passes, period, rounds = (8, 64), [1.0], 2.0, 2
    arms = [(where, n, ms) for where in ("engine", *NUM_SHARED) for n in levels for ms in passes]
    random = np.random.default_rng(seed)
    runs: list[Figures] = []
    try:
        for _ in track(range(rounds), console=console, transient=True):
            for index in random.permutation(len(arms)):
                where, n, ms = arms[int(index)]
                measured = (
                    measure_engine(n, ms, period)
                    if where == "engine"
                    else measure_server(where, n, ms, period)
                )
                runs.append(asyncio.run(measured))
    except SpecWhisperError as error:
        sys.exit(f"experiments.crowd: {error}")
    table = Table(
        *("", "sessions", "pass, ms", "in a pass", "tokens each", "tokens a second"),
        *("µs a session and pass", "Python of a pass, p95 ms", "between passes, p95 ms"),
        *("µs a message", "messages a second"),
        title="Medians, and quartiles in parentheses",
    )
    bars = []
    for arm in arms:
        own = [run for run in runs if (run.where, run.num_sessions, run.pass_ms) == arm]
        session_us, p95_ms = spread([run.session_us for run in own]), spread([run.p95_ms for run in own])
        message_us = spread([run.message_us for run in own])
        where, n, ms = arm
        table.add_row(
            *(where, str(n), f"{ms:g}", f"{np.median([run.batch_size for run in own]):.1f}"),
            f"{np.median([run.num_tokens for run in own]):.1f}",
            f"{np.median([run.tokens_per_s for run in own]):,.0f}",
            *(f"{session_us:.0f}", f"{p95_ms:.1f}"),
            f"{spread([run.p95_gap_ms for run in own]):.1f}",
            *(
                (f"{message_us:.0f}", f"{np.median([r.messages_per_s for r in own]):,.0f}")
                if message_us.median
                else ()
            ),
        )
        name = f"{where}, {n} sessions, {ms:g} ms"
        bars.append(Bar(f"µs a session and pass, {name}", session_us.median, 15, f"{session_us:.1f}"))
        if where != "engine":
            bars.append(Bar(f"µs a message, {name}", message_us.median, 40, f"{message_us:.1f}"))
        if n == 64:
            bars.append(Bar(f"p95 of a pass's Python in ms, {name}", p95_ms.median, 1.0, f"{p95_ms:.2f}"))
    console.print(table)
    if json is not None:
        write_json(json, models={"target": "recited"}, figures={"runs": [asdict(run) for run in runs]})
    sys.exit(0 if not check or print_bars(bars, console) else 1)


async def measure_engine(num_sessions: int, pass_ms: float, period_s: float) -> Figures:
    """Run an engine in this process."""
    passes = await run_engine(num_sessions, pass_ms, WARM_UP_S, period_s)
    num_rows = sum(each.num_rows for each in passes)
    python_ns = [each.python_ns for each in passes]
    return Figures(
        "engine",
        num_sessions,
        pass_ms,
        len(passes),
        num_rows / len(passes),
        sum(each.num_tokens for each in passes) / num_rows,
        sum(each.num_tokens for each in passes) / period_s,
        sum(python_ns) / num_rows / NS_PER_US,
        float(np.quantile(python_ns, 0.95)) / NS_PER_MS,
        float(np.quantile([each.gap_ns for each in passes], 0.95)) / NS_PER_MS,
    )


async def measure_server(where: str, num_sessions: int, pass_ms: float, period_s: float) -> Figures:
    """Run a server on a core of its own, and clients on another."""
    target_core, client_core = first_two_cores()
    server = ForkedServer(serve_recited, ServerSettings(num_sessions, pass_ms, (target_core,)))
    try:
        with on_cores([client_core]):
            generator = Generator(await server.ready(), num_sessions, NUM_SHARED[where])
            await generator.begin()
            await generator.run(WARM_UP_S)
            await server.probe("restart")
            before = generator.num_messages
            await generator.run(period_s)
            found = await server.probe(*PROBES)
            num_messages = generator.num_messages - before
            await generator.close()
    finally:
        await server.kill()
    return Figures(
        where,
        num_sessions,
        pass_ms,
        found["num_passes"],
        found["num_rows"] / found["num_passes"],
        found["num_tokens"] / found["num_rows"],
        found["num_tokens"] / period_s,
        found["python_ns"] / found["num_rows"] / NS_PER_US,
        found["p95_python_ns"] / NS_PER_MS,
        found["p95_gap_ns"] / NS_PER_MS,
        (found["process_ns"] - found["engine_ns"]) / num_messages / NS_PER_US,
        num_messages / period_s,
    )


if __name__ == "__main__":
    typer.run(crowd)
