"""``branches``: an upper bound on what side branches save, simulated."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Annotated

import typer
from rich.progress import track
from rich.table import Table

from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Audio, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, write_json
from experiments.common.replay.record import record
from experiments.common.replay.trace import Decoding
from experiments.latency.cells import parse_times
from experiments.latency.commands.expect import STEPS
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs, simulate_session
from experiments.latency.terms import OPTIONS, simulated_models
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import Candidates, Mode

MODES = (Mode.SYNC, Mode.FULL)


class Leaves:
    """Returns blocks corrected as if some second choices of the draft had been verified too.

    In a share of the corrections the wrong candidate becomes the right one, as if a leaf beside it had been
    verified; what the draft wrote after it stays. So the forward pass ends there with one token more.
    """

    def __init__(self, decodings: Sequence[Decoding], share: float, seed: int) -> None:
        self._decodings = decodings
        random = Random(seed)
        self._helped = [
            {position for position in sorted(decoding.divergences) if random.random() < share}
            for decoding in decodings
        ]

    def __call__(self, block: Candidates) -> Sequence[Candidates]:
        """Edit a block; its window id is the index of the decoding."""
        decoding, helped = self._decodings[block.window_id], self._helped[block.window_id]
        for place, token in enumerate(block.tokens):
            position = block.base + place
            if position in helped and token == decoding.divergences[position][0]:
                right = (*block.tokens[:place], decoding.tokens[position], *block.tokens[place + 1 :])
                return [replace(block, tokens=right)]
        return [block]


def branches(
    rtt: Annotated[str, typer.Option(help="Round trips, in forward passes of target-only.")] = STEPS,
    share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of corrections that a leaf contains.")
    ] = 0.3,
    rows: Annotated[float, typer.Option(min=0.0, help="Leaves per candidate.")] = 0.5,
    tokens: Annotated[
        str, typer.Option(help="Time that a token adds to a forward pass, in such passes.")
    ] = "0,0.01,0.04",
    draft_step: Annotated[float, typer.Option(min=0.0, help="Time of a draft step, in such passes.")] = 0.2,
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Simulate the most that side branches could save, as time per token relative to none.

    It is a bound, since leaves cost the draft nothing here. The defaults are those of the demo pair's draft:
    in 36 % of the corrections its second choice is right, and in four fifths of those its first choice has a
    probability below 0.7.
    """
    console = open_console()
    try:
        round_trips = parse_times("0,1.25" if quick else rtt, "--rtt")
        prices = parse_times(tokens, "--tokens")
        trace = record(load_samples(audio), target=target, draft=draft, options=OPTIONS)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    vocabulary = load_checkpoint(target).vocabulary
    leaves = Leaves(trace.decodings, share, seed)

    def time_s(mode: Mode, price: float, round_trip: float, *, has_leaves: bool) -> float:
        per_token = price * (1 + rows) if has_leaves else price
        simulated = simulate_session(
            trace.decodings,
            vocabulary,
            Costs(target=Cost(1 - per_token, per_token), draft=Cost(draft_step)),  # a forward pass takes 1 s
            DraftLength(mode, None),
            round_trip_s=round_trip,
            edit_block=leaves if has_leaves else lambda block: (block,),
        )
        return simulated.time_per_token_s

    table = Table(title="Time per token with side branches, relative to none", title_justify="left")
    for name in ("mode", "cost of a token", *(f"{round_trip:g}" for round_trip in round_trips)):
        table.add_column(name, justify="right")
    found = []
    cases = [(mode, price) for mode in MODES for price in prices]
    for mode, price in track(cases, "simulating", console=console, transient=True):
        ratios = [
            time_s(mode, price, each, has_leaves=True) / time_s(mode, price, each, has_leaves=False)
            for each in round_trips
        ]
        table.add_row(mode, f"{price:.0%}", *(f"{ratio:.2f}" for ratio in ratios))
        found.append({"mode": mode, "token": price, "ratios": dict(zip(round_trips, ratios, strict=True))})
    console.print(table)
    if json is not None:
        write_json(
            json,
            models=simulated_models(target, draft),
            figures={"share": share, "rows": rows, "branches": found},
        )
