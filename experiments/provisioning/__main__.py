"""``python -m experiments.provisioning``: servers for many live clients, and losses of a target, on paper."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from experiments.common.bench.options import JsonFile, Quick, Seed
from experiments.common.bench.report import open_console, write_json
from experiments.provisioning.capacity import EXPECTED, Live, capacity, num_targets
from experiments.provisioning.fleet import Fleet, Outcome, grow, lose_one, many
from specwhisper_deploy.scaling import BySessions

CLIENTS = (100, 1_000, 10_000)
TARGETS = (1, 4, 16)
LOADS = (0.7, 0.9, 1.0)
REACTION = 0.75  # sessions per replica that the policy aims for, of those that fit


def provisioning(
    utilisation: Annotated[
        float, typer.Option(min=0.1, max=1, help="Share of a GPU that may be busy.")
    ] = 0.7,
    encode_ms: Annotated[float, typer.Option(min=0.01, help="To encode a window.")] = EXPECTED.encode_ms,
    pass_ms: Annotated[float, typer.Option(min=0.01, help="Of a forward pass.")] = EXPECTED.pass_ms,
    token_ms: Annotated[float, typer.Option(min=0, help="Of each token in one.")] = EXPECTED.token_ms,
    speech: Annotated[float, typer.Option(min=0.01, max=1, help="Share of time with speech.")] = 0.8,
    step_ms: Annotated[float, typer.Option(min=50, help="Between steps of live audio.")] = 500,
    repeats: Annotated[int, typer.Option(min=1, help="Runs with other seeds.")] = 20,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Estimate from costs; the default ones are expected of large-v3 on an H200, not measured."""
    console, repeats = open_console(), 3 if quick else repeats
    costs = replace(EXPECTED, encode_ms=encode_ms, pass_ms=pass_ms, token_ms=token_ms)
    live = Live(speech=speech, steps_per_s=1e3 / step_ms)
    found = capacity(costs, live, utilisation=utilisation)
    console.print(
        f"A GPU serves {found.by_gpu} live sessions, a target's Python {found.by_python}: {found.sessions}.",
        highlight=False,
    )
    needed = [
        (clients, num_targets(clients, found.sessions), math.ceil(clients / costs.draft_sessions_per_core))
        for clients in CLIENTS
    ]
    table = Table("live clients", "GPUs, one of them to lose", "cores of draft servers", title="Servers")
    for row in needed:
        table.add_row(*(f"{number:,}" for number in row))
    console.print(table)
    lost = {
        (targets, load, standby): _lose(
            targets, load, standby, found.sessions, costs.encode_ms, repeats, seed
        )
        for targets in TARGETS
        for load in LOADS
        for standby in (0, 1)
    }
    table = Table("targets", "load", "standby", "median, s", "95 %, s", "end", title="A target is lost")
    for (targets, load, standby), outcome in lost.items():
        table.add_row(f"{targets}", f"{load:.0%}", f"{standby}", *_waits(outcome))
    console.print(table)
    grown = {
        (targets, standby): _grow(targets, standby, found.sessions, repeats, seed)
        for targets in TARGETS
        for standby in (0, 1)
    }
    table = Table("targets", "num_standby", "refused once", title="Sessions double in five minutes")
    for (targets, standby), outcome in grown.items():
        table.add_row(f"{targets}", f"{standby}", f"{outcome.num_refused / outcome.num_begun:.1%}")
    console.print(table)
    if json is not None:
        figures = {
            "costs": asdict(costs),
            "live": asdict(live),
            "capacity": asdict(found),
            "servers": needed,
            "lost": [[*key, asdict(outcome)] for key, outcome in lost.items()],
            "grown": [[*key, asdict(outcome)] for key, outcome in grown.items()],
        }
        write_json(json, models={"target": "large-v3, expected"}, figures=figures)


def _lose(
    targets: int, load: float, standby: int, sessions: int, encode_ms: float, repeats: int, seed: int
) -> Outcome:
    fleet = Fleet(targets, sessions, standby, encode_ms / 1e3)
    return many(lambda run: lose_one(fleet, round(load * fleet.num_slots), seed=seed + run), repeats)


def _grow(targets: int, standby: int, sessions: int, repeats: int, seed: int) -> Outcome:
    policy = BySessions(REACTION * sessions, num_standby=standby)
    fleet = Fleet(targets + standby, sessions)
    begun = round(REACTION * targets * sessions)
    return many(lambda run: grow(fleet, begun, factor=2, policy=policy, seed=seed + run), repeats)


def _waits(outcome: Outcome) -> tuple[str, str, str]:
    num_lost = len(outcome.waits_s) + outcome.num_ended
    waits = np.array(outcome.waits_s + [math.inf] * outcome.num_ended)
    median, late = (np.percentile(waits, share, method="lower") for share in (50, 95))
    shown = [f"{wait:.1f}" if math.isfinite(wait) else "over 60" for wait in (median, late)]
    return shown[0], shown[1], f"{outcome.num_ended / num_lost:.0%}"


if __name__ == "__main__":
    typer.run(provisioning)
