"""``python -m experiments.latency``: time per token by round trip, draft length and mode."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.common.audio.samples import BUNDLED, load_samples
from experiments.common.bench.options import Audio, Check, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console
from experiments.latency.cells import Hints, parse_gammas, parse_hints, parse_modes, parse_stall, parse_times
from experiments.latency.commands.ablate import ablate
from experiments.latency.commands.branches import branches
from experiments.latency.commands.calibrate import calibrate
from experiments.latency.commands.errors import Acceptance, Realigns, RunLength, named_processes
from experiments.latency.commands.expect import STEPS, expect
from experiments.latency.commands.opening import opening
from experiments.latency.commands.reproduce import reproduce
from experiments.latency.commands.simulate import simulate
from experiments.latency.commands.together import together
from experiments.latency.networks.backends import NETWORKS
from experiments.latency.networks.conditions import Conditions
from experiments.latency.report.captions import write_captions
from experiments.latency.report.figures import write_figures
from experiments.latency.report.page import write_page
from experiments.latency.report.report import SweepReport, report
from experiments.latency.report.series import draw
from experiments.latency.sweep.grid import sweep as measure
from experiments.latency.sweep.models import Models
from experiments.latency.sweep.request import SweepRequest, SweepSetup
from experiments.latency.sweep.store import Store
from specwhisper.errors import SpecWhisperError

QUICK_STEPS, QUICK_GAMMAS, QUICK_MODES = "0,2.5", "3,chosen", "target-only,sync,full"
MODES = "target-only,sync,pipelined,full,one-process"
SHORTEST = tuple(BUNDLED / name for name in ("01_phone_call.flac", "07_a_letter.flac", "02_tomato_soup.flac"))
SWEEP = Path("latency.jsonl")

app = typer.Typer(add_completion=False, no_args_is_help=True)
app.command()(ablate)
app.command()(branches)
app.command()(calibrate)
app.command()(expect)
app.command()(opening)
app.command()(reproduce)
app.command()(simulate)
app.command()(together)
SweepFile = Annotated[Path, typer.Option("--sweep", dir_okay=False, help="File that `sweep` wrote.")]


@app.command()
def sweep(
    rtt: Annotated[str, typer.Option(help="Round trips, in forward passes of target-only.")] = STEPS,
    rtt_ms: Annotated[str | None, typer.Option(help="Round trips in milliseconds, instead of --rtt.")] = None,
    gamma: Annotated[
        str, typer.Option(help="Draft lengths; 'chosen': each session chooses its own.")
    ] = "1,2,4,8,16,chosen",
    modes: Annotated[str, typer.Option(help="Modes.")] = MODES,
    hints: Annotated[
        str, typer.Option(help=f"Hints in mode full: {', '.join(Hints)}.")
    ] = "realigned,off,given,adversarial",
    models: Annotated[
        str, typer.Option(help="demo, or replay-SHAPE: the cost of that shape, the demo pair's text.")
    ] = "replay-small",
    dtype: Annotated[str, typer.Option(help="Data type of a replay's weights.")] = "float32",
    encode: Annotated[
        bool, typer.Option("--encode", help="Encode windows too; by default all time is decoding.")
    ] = False,
    next_window: Annotated[
        bool, typer.Option(help="Draft the next window before the target opens it.")
    ] = True,
    network: Annotated[str, typer.Option(help=f"One of {', '.join(NETWORKS)}.")] = "tun",
    jitter_ms: Annotated[float, typer.Option(help="Mean queueing delay each way, exponential, in ms.")] = 0.0,
    loss: Annotated[float, typer.Option(help="Share of packets lost, each way.")] = 0.0,
    reordering: Annotated[float, typer.Option(help="Share of packets that overtake others, each way.")] = 0.0,
    mbit: Annotated[float, typer.Option(help="Bandwidth each way, in Mbit/s; 0 is unlimited.")] = 0.0,
    stall: Annotated[
        str, typer.Option(help="Length of a stall and time from one to the next, in s: '0.5,5'.")
    ] = "0,0",
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    acceptance: Acceptance = None,
    realigns: Realigns = "0.8",
    run_length: RunLength = 0.0,
    audio: Audio = None,
    repeats: Annotated[
        int, typer.Option(min=1, help="Measurements of each cell; a later run may add more.")
    ] = 5,
    set_repeats: Annotated[
        int | None,
        typer.Option(
            min=0, help="Of these, how many also have the set draft lengths: the last ones; default: all."
        ),
    ] = None,
    max_cores: Annotated[int, typer.Option(min=1, max=2, help="Most cores of `one-process`.")] = 2,
    out: Annotated[
        Path,
        typer.Option(dir_okay=False, help="File of the runs (JSON lines); an interrupted sweep continues."),
    ] = SWEEP,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Measure time per token over a network, by round trip, draft length and mode.

    The target server has one core; draft server, client and network share the other. Cells are interleaved;
    every text is compared with the target's own. The sweep fails if one differs. Several ``--acceptance`` or
    ``--realigns`` are measured one after the other, each in a file of its own.
    """
    console = open_console()
    try:
        if quick:
            rtt, gamma, modes, repeats = QUICK_STEPS, QUICK_GAMMAS, QUICK_MODES, 1
            models = "demo" if acceptance is None else "replay-base"
        in_seconds = rtt_ms is not None
        round_trips = parse_times(rtt, "--rtt")
        if rtt_ms is not None:
            round_trips = [ms / 1e3 for ms in parse_times(rtt_ms, "--rtt-ms")]
        stall_s, stall_every_s = parse_stall(stall)
        request = SweepRequest(
            parse_modes(modes),
            parse_gammas(gamma),
            round_trips,
            in_seconds,
            repeats,
            max_cores,
            seed,
            parse_hints(hints),
            set_repeats,
        )
        errors_by_name = named_processes(acceptance, realigns, run_length)
        drafts = {
            name: Models(models, target, draft, dtype, encode, next_window, errors)
            for name, errors in list(errors_by_name.items())[: 1 if quick else None]
        }
        conditions = Conditions(
            0.0, jitter_ms / 1e3, loss, reordering, mbit * 125_000, stall_every_s, stall_s
        )
        samples = load_samples(audio or SHORTEST[: 1 if quick else None])
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and networks are stopped
        all_hold = True
        for name, pair in drafts.items():
            file, figures = out.with_stem(out.stem + name), json and json.with_stem(json.stem + name)
            measure(request, SweepSetup(pair, samples, network, conditions), Store(file), console)
            all_hold &= report(file, console, seed=seed, json=figures, check=check)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    sys.exit(0 if all_hold else 1)


@app.command()
def show(sweep: SweepFile = SWEEP, seed: Seed = 0, json: JsonFile = None, check: Check = False) -> None:
    """Print a sweep's tables, predictions and bars; fail if a text was not the target's."""
    try:
        all_hold = report(sweep, open_console(), seed=seed, json=json, check=check)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    sys.exit(0 if all_hold else 1)


@app.command()
def plot(
    sweep: SweepFile = SWEEP,
    folder: Annotated[Path, typer.Option(file_okay=False, help="Folder of the plots.")] = Path("latency"),
    seed: Seed = 0,
) -> None:
    """Draw a sweep: figures as PNG, SVG and PDF, their captions, and one interactive page."""
    try:
        found = SweepReport.of(sweep)
        drawing = draw(found.summary, found.predicted, seed=seed)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    header = found.sweep.header
    facts = [
        f"A forward pass of target-only takes {1e3 * found.sweep.step_s:.1f} ms.",
        f"Network: {header['network']}; {drawing.repeats}; {', '.join(header['request']['samples'])}.",
        *found.facts(),
        f"torch {header['versions']['torch']}.",
    ]
    page, captions = folder / "latency.html", folder / "captions.md"
    written = write_figures(drawing, folder)
    write_captions(drawing, captions)
    write_page(drawing, facts, [*map(str, found.bars(seed)), *found.notes(seed)], page)
    for path in (*written, captions, page):
        typer.echo(path)


if __name__ == "__main__":
    app()
