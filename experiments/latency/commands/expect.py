"""``expect``: one session by round trip and mode, simulated for models of any cost."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Audio, Draft, JsonFile, Quick, Target
from experiments.common.bench.report import open_console, write_json
from experiments.common.replay.record import record
from experiments.latency.cells import CHOSEN, parse_times
from experiments.latency.prediction.fit import acceptance_of
from experiments.latency.prediction.predict import CostModel, costs_facts
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs
from experiments.latency.terms import OPTIONS, simulated_models
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoint import load_checkpoint
from specwhisper.types import Mode

STEPS = "0,0.25,0.5,1.25,2.5,5,10"
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)  # draft lengths to try


@dataclass(frozen=True, slots=True)
class Expected:
    """Simulated times per token at one round trip, relative to target-only.

    Attributes
    ----------
    sync : by fixed draft length.
    chosen : by mode, with the draft length that the session chooses.
    full : closed form of mode ``full``.
    """

    round_trip: float
    sync: dict[int, float]
    chosen: dict[Mode, float]
    full: float

    @property
    def best_gamma(self) -> int:
        """The fixed draft length with which ``sync`` is fastest."""
        return min(self.sync, key=lambda gamma: self.sync[gamma])


def expected(model: CostModel, round_trip: float, pass_s: float) -> Expected:
    """Simulate one round trip, given in forward passes of target-only."""
    way_s = round_trip * pass_s
    target_only_s = model.simulated_s(Mode.TARGET_ONLY, CHOSEN, way_s)
    drafting = (Mode.SYNC, Mode.PIPELINED, Mode.FULL)
    return Expected(
        round_trip,
        {gamma: model.simulated_s(Mode.SYNC, gamma, way_s) / target_only_s for gamma in LENGTHS},
        {mode: model.simulated_s(mode, CHOSEN, way_s) / target_only_s for mode in drafting},
        model.closed_form_s(Mode.FULL, CHOSEN, way_s) / target_only_s,
    )


def print_expected(found: list[Expected], console: Console, *, title: str) -> None:
    """Print a table with a row per round trip."""
    table = Table(title=title, title_justify="left")
    names = (
        "round trip, forward passes",
        "sync, best fixed",
        "sync, chosen",
        "pipelined, chosen",
        "full, chosen",
    )
    for name in (*names, "full, closed form"):
        table.add_column(name, justify="right")
    for one in found:
        table.add_row(
            f"{one.round_trip:g}",
            f"{one.sync[one.best_gamma]:.2f} ({one.best_gamma})",
            *(f"{share:.2f}" for share in one.chosen.values()),
            f"{one.full:.2f}",
        )
    console.print(table)


def expect(
    rtt: Annotated[str, typer.Option(help="Round trips, in forward passes of target-only.")] = STEPS,
    pass_ms: Annotated[
        float, typer.Option(min=0.001, help="Time of a target-only forward pass, in ms.")
    ] = 70.0,
    draft_step: Annotated[float, typer.Option(min=0.0, help="Time of a draft step, in such passes.")] = 0.2,
    token: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Time that a token adds to a forward pass, in such passes."),
    ] = 0.04,
    message: Annotated[
        float, typer.Option(min=0.0, help="Time of a message beside the link's, in such passes.")
    ] = 0.0,
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    quick: Quick = False,
    json: JsonFile = None,
) -> None:
    """Simulate one session by round trip and mode, with the service's own engines.

    Times are given in forward passes of target-only; the models write what the demo pair writes. Every
    simulated text is compared with the target's.
    """
    console = open_console()
    try:
        round_trips = parse_times("0,1.25" if quick else rtt, "--rtt")
        trace = record(load_samples(audio), target=target, draft=draft, options=OPTIONS)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    pass_s = pass_ms / 1e3
    target_cost = Cost(pass_s * (1 - token), pass_s * token)
    costs = Costs(target=target_cost, draft=Cost(pass_s * draft_step), message_s=pass_s * message)
    model = CostModel(costs, trace.decodings, load_checkpoint(target).vocabulary)
    found = [
        expected(model, round_trip, pass_s)
        for round_trip in track(round_trips, "simulating", console=console, transient=True)
    ]
    acceptance = acceptance_of(trace.decodings)
    title = (
        f"Simulated time per token relative to target-only; {acceptance:.0%} accepted, "
        f"draft step {draft_step:g}"
    )
    print_expected(found, console, title=title)
    if json is not None:
        rows = [
            {
                "round_trip": one.round_trip,
                "sync": one.sync,
                "chosen": {str(mode): share for mode, share in one.chosen.items()},
                "full": one.full,
            }
            for one in found
        ]
        figures = {"costs": costs_facts(costs), "acceptance": acceptance, "expected": rows}
        write_json(json, models=simulated_models(target, draft), figures=figures)
