"""``together``: many sessions on one target by round trip and mode, simulated."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.progress import track
from rich.table import Table

from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Audio, Draft, JsonFile, Quick, Seed, Target, parse_levels
from experiments.common.bench.report import open_console, write_json
from experiments.common.replay.record import record
from experiments.latency.cells import parse_times
from experiments.latency.prediction.fit import acceptance_of
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs, simulate_together
from experiments.latency.terms import OPTIONS, simulated_models
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import Mode

DRAFTING = (Mode.SYNC, Mode.PIPELINED, Mode.FULL)
NUM_WINDOWS = 4  # per session
HANDLING_US = 100.0  # CPU time of a message on an Intel Xeon: serialisation, gRPC, thread wake-up


def together(
    sessions: Annotated[str, typer.Option(help="Sessions on the target; rows for each number.")] = ("1,8,32"),
    rtt: Annotated[str, typer.Option(help="Round trips, in forward passes of all sessions.")] = (
        "0,0.25,0.5,1,2.5"
    ),
    pass_ms: Annotated[float, typer.Option(min=0.001, help="Constant part of a forward pass, in ms.")] = 8.0,
    token_us: Annotated[float, typer.Option(min=0.0, help="Part per token, in µs.")] = 5.0,
    session_us: Annotated[float, typer.Option(min=0.0, help="Part per session, in µs.")] = 55.0,
    draft_ms: Annotated[float, typer.Option(min=0.0, help="Constant part of a draft step, in ms.")] = 2.0,
    draft_session_us: Annotated[
        float, typer.Option(min=0.0, help="Part of a draft step per session, in µs.")
    ] = 200.0,
    per_draft_server: Annotated[int, typer.Option(min=1, help="Sessions per draft server.")] = 4,
    message_us: Annotated[
        float, typer.Option(min=0.0, help="CPU time of a message at each server, in µs.")
    ] = HANDLING_US,
    jitter_ms: Annotated[float, typer.Option(min=0.0, help="Mean queueing delay each way, in ms.")] = 0.0,
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Simulate sessions that share a target and always have work.

    The service's own engines run. Default costs are about those of large-v3 in float16 without CUDA graphs;
    text and acceptance are the demo pair's. Every text is compared with the target's.
    """
    console = open_console()
    try:
        levels = parse_levels("1,8" if quick else sessions)
        round_trips = parse_times("0,1" if quick else rtt, "--rtt")
        trace = record(load_samples(audio), target=target, draft=draft, options=OPTIONS)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    vocabulary = load_checkpoint(target).vocabulary
    costs = Costs(
        Cost(pass_ms / 1e3, token_us / 1e6, session_us / 1e6),
        Cost(draft_ms / 1e3, 0.0, draft_session_us / 1e6),
        handling_s=message_us / 1e6,
    )
    acceptance = acceptance_of(trace.decodings)
    title = f"Simulated tokens per second relative to target-only; {acceptance:.0%} accepted"
    table = Table(title=title, title_justify="left")
    for name in ("sessions", "round trip, forward passes", "ms", "target-only, tokens/s", *DRAFTING):
        table.add_column(name, justify="right")
    found = []
    cases = [(level, round_trip) for level in levels for round_trip in round_trips]
    for num_sessions, round_trip in track(cases, "simulating", console=console, transient=True):
        way_s = round_trip * costs.target.of(num_sessions, num_sessions)
        tokens_per_s = {
            mode: simulate_together(
                trace.decodings,
                vocabulary,
                costs,
                DraftLength(mode, None),
                num_sessions=num_sessions,
                per_draft_server=per_draft_server,
                num_windows=NUM_WINDOWS,
                round_trip_s=way_s,
                jitter_s=jitter_ms / 1e3,
                seed=seed,
            )
            for mode in (Mode.TARGET_ONLY, *DRAFTING)
        }
        target_only = tokens_per_s[Mode.TARGET_ONLY]
        gains = (f"{tokens_per_s[mode] / target_only:.2f}" for mode in DRAFTING)
        table.add_row(
            f"{num_sessions}", f"{round_trip:g}", f"{1e3 * way_s:.1f}", f"{target_only:,.0f}", *gains
        )
        found.append(
            {
                "sessions": num_sessions,
                "round_trip_s": way_s,
                "tokens_per_s": {str(mode): value for mode, value in tokens_per_s.items()},
            }
        )
    console.print(table)
    if json is not None:
        figures = {"costs": asdict(costs), "acceptance": acceptance, "together": found}
        write_json(json, models=simulated_models(target, draft), figures=figures)
