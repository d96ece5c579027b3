"""``python -m experiments.latency``: the round trip against the draft length, measured and predicted."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.common.args import Audio, Check, Draft, JsonFile, Quick, Seed, Target
from experiments.common.report import open_console, print_bars, write_json
from experiments.common.samples import BUNDLED, load_samples
from experiments.latency.calibrate import calibrate
from experiments.latency.cells import parse_gammas, parse_modes, parse_times
from experiments.latency.expect import STEPS, expect
from experiments.latency.figures import write_figures
from experiments.latency.networks.backends import NETWORKS
from experiments.latency.networks.conditions import Conditions
from experiments.latency.page import write_page
from experiments.latency.populate import simulate
from experiments.latency.predict import Model, costs_facts, describe_costs, predict
from experiments.latency.reproduce import reproduce
from experiments.latency.series import draw
from experiments.latency.store import Store
from experiments.latency.summary import Summary, find_bars, print_tables
from experiments.latency.sweep import Asked
from experiments.latency.sweep import sweep as measure
from experiments.latency.together import together
from specwhisper.errors import SpecWhisperError

QUICK_STEPS, QUICK_GAMMAS, QUICK_MODES = "0,2.5", "3,chosen", "target-only,sync,full"
MODES = "target-only,sync,pipelined,full,one-process"
SAMPLE = BUNDLED / "01_phone_call.flac"

app = typer.Typer(add_completion=False, no_args_is_help=True)
app.command()(calibrate)
app.command()(expect)
app.command()(reproduce)
app.command()(simulate)
app.command()(together)
SweepFile = Annotated[
    Path, typer.Option("--out", dir_okay=False, help="The sweep: JSON lines; an interrupted one goes on.")
]


@app.command()
def sweep(
    rtt: Annotated[str, typer.Option(help="Round trips, in passes of the target alone.")] = STEPS,
    rtt_ms: Annotated[str | None, typer.Option(help="The same in milliseconds, instead.")] = None,
    gamma: Annotated[
        str, typer.Option(help="Draft lengths; 'chosen' leaves it to the session.")
    ] = "1,2,4,8,16,chosen",
    modes: Annotated[str, typer.Option(help="Modes.")] = MODES,
    models: Annotated[
        str, typer.Option(help="demo, or replay-small and the like: its cost, the demo pair's text.")
    ] = "replay-small",
    dtype: Annotated[str, typer.Option(help="Of a replay's weights.")] = "float32",
    encode: Annotated[
        bool, typer.Option("--encode", help="Encode windows too; else all time is decoding.")
    ] = False,
    next_window: Annotated[
        bool, typer.Option(help="Draft a window before the target opens it, as draft servers do.")
    ] = True,
    network: Annotated[str, typer.Option(help=f"One of {', '.join(NETWORKS)}.")] = "tun",
    jitter_ms: Annotated[float, typer.Option(help="Mean of what queues add, each way.")] = 0.0,
    loss: Annotated[float, typer.Option(help="Share of packets lost, each way.")] = 0.0,
    reordering: Annotated[float, typer.Option(help="Share of packets that overtake, each way.")] = 0.0,
    mbit: Annotated[float, typer.Option(help="Bandwidth each way, in Mbit/s; 0 is unlimited.")] = 0.0,
    stall: Annotated[
        str, typer.Option(help="Seconds of a stall, and seconds from one to the next: '0.5,5'.")
    ] = "0,0",
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    repeats: Annotated[
        int, typer.Option(min=1, help="How often each cell is measured; more can be added.")
    ] = 5,
    max_cores: Annotated[int, typer.Option(min=1, max=2, help="Cores that one process gets at most.")] = 2,
    out: SweepFile = Path("latency.jsonl"),
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Measure time per token over a network, by round trip, draft length and mode.

    The target server runs on one core, draft server, client and network on the other. Cells are interleaved;
    every text is compared with the target's own, and the sweep fails if one differs.
    """
    console = open_console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and networks are taken down
    try:
        if quick:
            rtt, gamma, modes, repeats = QUICK_STEPS, QUICK_GAMMAS, QUICK_MODES, 1
            models = "demo"
        round_trips = parse_times(rtt, "--rtt")
        if rtt_ms is not None:
            round_trips = [ms / 1e3 for ms in parse_times(rtt_ms, "--rtt-ms")]
        stall_s, stall_every_s = parse_times(stall, "--stall")
        conditions = Conditions(
            0.0, jitter_ms / 1e3, loss, reordering, mbit * 125_000, stall_every_s, stall_s
        )
        asked = Asked(
            parse_modes(modes), parse_gammas(gamma), round_trips, rtt_ms is not None, repeats, max_cores, seed
        )
        different = measure(
            asked,
            load_samples(audio or [SAMPLE]),
            conditions,
            models=models,
            dtype=dtype,
            encodes=encode,
            drafts_next_window=next_window,
            target=target,
            draft=draft,
            network_name=network,
            store=Store(out),
            console=console,
        )
        all_hold = report(out, seed=seed, json=json, check=check)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    for line in different:
        console.print(f"DIFFERENT: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not different else 1)


@app.command()
def show(
    sweep_file: SweepFile = Path("latency.jsonl"), seed: Seed = 0, json: JsonFile = None, check: Check = False
) -> None:
    """Show a sweep again, with its predictions and bars."""
    try:
        all_hold = report(sweep_file, seed=seed, json=json, check=check)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    sys.exit(0 if all_hold else 1)


@app.command()
def plot(
    sweep_file: SweepFile = Path("latency.jsonl"),
    folder: Annotated[Path, typer.Option(file_okay=False, help="Where the plots go.")] = Path("latency"),
    seed: Seed = 0,
) -> None:
    """Draw a sweep: four PNG files, and one page with plots to point at."""
    try:
        found = Store(sweep_file).load()
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    summary = Summary.of(found)
    predicted = predict(found, summary.times_s)
    drawing = draw(summary, predicted)
    machine, names = found.header["machine"], ", ".join(found.header["asked"]["samples"])
    num_repeats = len({run.repeat for run in found.runs})
    facts = [
        f"A pass of the target alone takes {1e3 * found.step_s:.1f} ms.",
        describe_costs(Model.of(found).costs, found.step_s).capitalize() + ".",
        f"Network: {found.header['network']}; {num_repeats} repeats of {names}.",
        f"{machine['cpu']}, {machine['cores']} cores; torch {found.header['versions']['torch']}.",
    ]
    written = write_figures(drawing, folder)
    page = folder / "latency.html"
    write_page(drawing, facts, list(map(str, find_bars(summary, predicted, seed=seed))), page)
    for path in (*written, page):
        typer.echo(path)


def report(path: Path, *, seed: int, json: Path | None, check: bool) -> bool:
    """Print what a sweep found; tell whether its bars hold, where they are asked for."""
    console = open_console()
    found = Store(path).load()
    summary = Summary.of(found)
    predicted = predict(found, summary.times_s)
    costs = Model.of(found).costs
    if costs.draft.pass_s:  # without drafts a pass's constant cannot be told from its tokens
        console.print(f"Fitted: {describe_costs(costs, found.step_s)}", highlight=False)
    print_tables(summary, predicted, console, seed=seed)
    bars = find_bars(summary, predicted, seed=seed)
    if json is not None:
        figures = {
            "sweep": {name: value for name, value in found.header.items() if name not in ("trace", "models")},
            "fitted": costs_facts(costs),
            "cells": [
                {
                    "cell": str(cell),
                    "round_trip_steps": summary.steps(cell),
                    "times_per_token_s": list(times.values()),
                    "closed_form_s": predicted[cell].closed_form_s if cell in predicted else None,
                    "simulated_s": predicted[cell].simulated_s if cell in predicted else None,
                }
                for cell, times in summary.times_s.items()
            ],
            "bars": list(map(str, bars)),
        }
        write_json(json, models=found.header["models"], figures=figures)
    return print_bars(bars, console) if check else True


if __name__ == "__main__":
    app()
