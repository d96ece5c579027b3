"""``expect``: one session by round trip and mode, simulated for models of any cost."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Audio, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, write_json
from experiments.common.replay.record import record
from experiments.common.replay.trace import Trace
from experiments.latency.cells import CHOSEN, Arm, Hints, parse_times
from experiments.latency.commands.errors import Acceptance, Realigns, RunLength, with_errors
from experiments.latency.prediction.fit import acceptance_of, realigned_of
from experiments.latency.prediction.predict import CostModel, costs_facts
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs
from experiments.latency.terms import OPTIONS, simulated_models
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
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
    hints : of ``full`` by kind of hints.
    full : closed form of mode ``full``.
    """

    round_trip: float
    sync: dict[int, float]
    chosen: dict[Mode, float]
    hints: dict[Hints, float]
    full: float

    @property
    def best_gamma(self) -> int:
        """The fixed draft length with which ``sync`` is fastest."""
        return min(self.sync, key=lambda gamma: self.sync[gamma])


def expected(model: CostModel, round_trip: float, pass_s: float) -> Expected:
    """Simulate one round trip, given in forward passes of target-only."""
    way_s = round_trip * pass_s
    target_only_s = model.simulated_s(Mode.TARGET_ONLY, CHOSEN, way_s)

    def relative(mode: Mode, hints: Hints = Hints.REALIGNED) -> float:
        return model.simulated_s(mode, CHOSEN, way_s, hints) / target_only_s

    return Expected(
        round_trip,
        {gamma: model.simulated_s(Mode.SYNC, gamma, way_s) / target_only_s for gamma in LENGTHS},
        {mode: relative(mode) for mode in (Mode.SYNC, Mode.PIPELINED, Mode.FULL)},
        {kind: relative(Mode.FULL, kind) for kind in (Hints.OFF, Hints.GIVEN, Hints.ADVERSARIAL)},
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
    of_hints = map(str, (Arm(Mode.FULL, hints=kind) for kind in found[0].hints))
    for name in (*names, *of_hints, "full, closed form"):
        table.add_column(name, justify="right")
    for one in found:
        table.add_row(
            f"{one.round_trip:g}",
            f"{one.sync[one.best_gamma]:.2f} ({one.best_gamma})",
            *(f"{share:.2f}" for share in (*one.chosen.values(), *one.hints.values())),
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
    acceptance: Acceptance = None,
    realigns: Realigns = "0.8",
    run_length: RunLength = 0.0,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Simulate one session by round trip and mode, with the service's own engines.

    Times are given in forward passes of target-only. The models write what the demo pair writes; the
    draft's errors are its own, or those of chosen rates, with a table for each. Every simulated text is
    compared with the target's.
    """
    console = open_console()
    try:
        round_trips = parse_times("0,1.25" if quick else rtt, "--rtt")
        trace = record(load_samples(audio), target=target, draft=draft, options=OPTIONS)
        traces = list(with_errors(trace, acceptance, realigns, run_length, seed))
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    pass_s = pass_ms / 1e3
    target_cost = Cost(pass_s * (1 - token), pass_s * token)
    costs = Costs(target=target_cost, draft=Cost(pass_s * draft_step), message_s=pass_s * message)
    vocabulary = load_checkpoint(target).vocabulary
    tables = []
    for name, errors in traces:
        model = CostModel(costs, errors.decodings, vocabulary)
        found = [
            expected(model, round_trip, pass_s)
            for round_trip in track(round_trips, "simulating", console=console, transient=True)
        ]
        accepted = f"{acceptance_of(errors.decodings):.0%} accepted"
        title = (
            f"Simulated time per token relative to target-only; {name}: {accepted}; draft step {draft_step:g}"
        )
        print_expected(found, console, title=title)
        tables.append({"errors": name, **_facts(errors, found)})
    if json is not None:
        figures = {"costs": costs_facts(costs), "expected": tables}
        write_json(json, models=simulated_models(target, draft), figures=figures)


def _facts(trace: Trace, found: list[Expected]) -> dict[str, Any]:
    return {
        "acceptance": acceptance_of(trace.decodings),
        "realigned": realigned_of(trace.decodings),
        "rows": [
            {
                "round_trip": one.round_trip,
                "sync": one.sync,
                "chosen": {str(mode): share for mode, share in one.chosen.items()},
                "full_by_hints": {str(kind): share for kind, share in one.hints.items()},
                "full_closed_form": one.full,
            }
            for one in found
        ],
    }
