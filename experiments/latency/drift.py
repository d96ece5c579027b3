"""``drift``: a link whose round trip changes within a recording; fixed draft lengths against chosen ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import cos, pi
from pathlib import Path
from random import Random
from threading import Event, Thread
from time import monotonic
from typing import Annotated

import typer
from rich.progress import track
from rich.table import Table

from experiments.common.audio.samples import BUNDLED, load_samples
from experiments.common.bench.options import Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, write_json
from experiments.common.servers.processes import on_cores
from experiments.latency.cells import TARGET_ONLY, Arm, parse_gammas, parse_modes
from experiments.latency.lab import DraftDtype, Pair, cores_used, open_lab
from experiments.latency.link import Link, open_link
from specwhisper.errors import SpecWhisperError
from specwhisper_client.cli.tuning.advice import Ratio

STEP_S = 0.05  # from one change of the link to the next
SEVERAL_WINDOWS = BUNDLED / "06_the_clock_in_the_tower.ogg"


def drift(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    draft_dtype: DraftDtype = "int8",
    audio: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="A recording.")] = SEVERAL_WINDOWS,
    near_ms: Annotated[float, typer.Option(min=0.0, help="Shortest round trip, in ms.")] = 20.0,
    far_ms: Annotated[float, typer.Option(min=0.0, help="Longest round trip, in ms.")] = 300.0,
    period_s: Annotated[float, typer.Option(min=0.5, help="From one shortest to the next, in s.")] = 4.0,
    modes: Annotated[str, typer.Option(help="Modes with a draft.")] = "sync,full",
    gamma: Annotated[str, typer.Option(help="Draft lengths.")] = "1,2,3,5,8,12,16,24,chosen",
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of each.")] = 3,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Measure draft lengths over a link that goes from near to far and back within a recording."""
    console, pair = open_console(), Pair(target, draft, draft_dtype)
    try:
        if quick:
            gamma, modes, repeats = "5,chosen", "full", 2
        arms = [Arm(mode, length) for mode in parse_modes(modes) for length in parse_gammas(gamma)]
        runs = [(repeat, arm) for repeat in range(repeats) for arm in [TARGET_ONLY, *arms]]
        (sample,) = load_samples([audio])
        times_s: dict[Arm, list[float]] = {}
        with ExitStack() as stack:
            with on_cores(cores_used()["draft"]):
                link = stack.enter_context(open_link("tun"))
            lab = stack.enter_context(open_lab(pair, link))
            lab.connect(near_ms)
            text = lab.transcribe(TARGET_ONLY, sample).tokens
            shuffled = sorted(runs, key=lambda run: (run[0], Random(f"{seed} {run}").random()))
            for _, arm in track(shuffled, "measuring", console=console, transient=True):
                with drifting(link, near_ms, far_ms, period_s):
                    timed = lab.transcribe(arm, sample)
                if timed.tokens != text:
                    sys.exit(f"experiments.latency: DIFFERENT: {arm}: the text differs from the target's.")
                times_s.setdefault(arm, []).append(timed.decoding_s)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    over = {arm: Ratio.paired(times_s[arm], times_s[TARGET_ONLY]) for arm in arms}
    title = f"Decoding over target-only, {near_ms:g} to {far_ms:g} ms"
    table = Table("draft length", "over target-only", title=title, title_justify="left")
    for arm, ratio in over.items():
        table.add_row(str(arm), str(ratio))
    console.print(table)
    if json is not None:
        figures = {
            "near_ms": near_ms,
            "far_ms": far_ms,
            "period_s": period_s,
            "sample": sample.name,
            "num_tokens": len(text),
            "arms": [
                {"mode": arm.mode, "gamma": arm.gamma, "over": [r.value, r.low, r.high]}
                for arm, r in over.items()
            ],
        }
        write_json(json, models=pair.facts(), figures=figures)


@contextmanager
def drifting(link: Link, near_ms: float, far_ms: float, period_s: float) -> Iterator[None]:
    """Let the round trip follow a cosine, which begins near, while the body runs."""
    is_over, started_s = Event(), monotonic()

    def change() -> None:
        while not is_over.wait(STEP_S):
            share = (1 - cos(2 * pi * (monotonic() - started_s) / period_s)) / 2
            link.set_round_trip((near_ms + share * (far_ms - near_ms)) / 1e3)

    thread = Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        link.set_round_trip(near_ms / 1e3)
