"""``simulate``: large deployments, from costs measured elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Audio, Draft, JsonFile, Quick, Seed, Target, parse_levels
from experiments.common.bench.report import open_console, write_json
from experiments.common.replay.record import record
from experiments.common.replay.trace import Trace
from experiments.latency.cells import CHOSEN, parse_gammas, parse_modes, parse_times
from experiments.latency.pair import OPTIONS
from experiments.latency.prediction import acceptance_of
from experiments.latency.simulation.population import Outcome, Population, simulate_population
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import Mode

HANDLING_US = 100.0  # CPU time of a message on an Intel Xeon: serialisation, gRPC, thread wake-up
MESSAGE_S = 0.0003  # time of a message, one way: serialisation, gRPC, thread wake-up
SEARCHES = 7  # bisection steps


@dataclass(frozen=True, slots=True)
class Scenario:
    """A population, its costs and its sessions' draft length."""

    population: Population
    costs: Costs
    length: DraftLength
    duration_s: float
    seed: int


@dataclass(frozen=True, slots=True)
class Simulated:
    """A scenario and its outcome."""

    mode: str
    gamma: int | None
    num_clients: int
    outcome: Outcome

    def facts(self) -> dict[str, Any]:
        """Return both as JSON values."""
        return asdict(self)


def run_scenario(scenario: Scenario, trace: Trace) -> Simulated:
    """Simulate a scenario."""
    outcome = simulate_population(
        scenario.population,
        trace.decodings,
        load_checkpoint(trace.target).vocabulary,
        scenario.costs,
        scenario.length,
        duration_s=scenario.duration_s,
        seed=scenario.seed,
    )
    gamma = scenario.length.gamma
    return Simulated(scenario.length.mode, gamma, scenario.population.num_clients, outcome)


def print_simulated(found: Sequence[Simulated], console: Console, *, trace: Trace, max_lag_s: float) -> None:
    """Print a table with a row per scenario."""
    acceptance = acceptance_of(trace.decodings)
    has_links = any(len(one.outcome.p95_by_round_trip_s) > 1 for one in found)
    by_link = ["p95 s by round trip"] if has_links else []
    table = Table(
        title=f"Simulated; {acceptance:.0%} accepted; lag of a window's last token",
        title_justify="left",
    )
    for name in ("clients", "mode", "gamma", "p50 s", "p95 s", "p99 s", f"p95 <= {max_lag_s:g} s", *by_link):
        table.add_column(name, justify="right")
    for name in ("tokens/s", "tokens/forward", "target use", "encoder use", "draft use", "wasted", "waited"):
        table.add_column(name, justify="right")
    for one in found:
        outcome = one.outcome
        table.add_row(
            f"{one.num_clients:,}",
            one.mode,
            "" if one.mode == Mode.TARGET_ONLY else str(one.gamma or "chosen"),
            *(f"{lag_s:.2f}" for lag_s in outcome.lag_s),
            "yes" if outcome.lag_s[1] <= max_lag_s else "no",
            *([" / ".join(f"{lag_s:.2f}" for lag_s in outcome.p95_by_round_trip_s)] if by_link else []),
            f"{outcome.tokens_per_s:,.0f}",
            f"{outcome.tokens_per_forward:.2f}",
            f"{outcome.target_use:.0%}",
            f"{outcome.encoder_use:.0%}",
            f"{outcome.draft_use:.0%}",
            f"{outcome.wasted:.0%}",
            f"{outcome.num_waited:,}",
        )
    console.print(table)


def simulate(
    clients: Annotated[str, typer.Option(help="Clients that speak; a row for each number.")] = "100,1000",
    targets: Annotated[int, typer.Option(min=1, help="Target replicas, one GPU each.")] = 1,
    draft_servers: Annotated[
        int | None, typer.Option(min=1, help="Draft servers. [default: one per 8 clients]")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="Concurrent sessions of a target.")] = 64,
    modes: Annotated[str, typer.Option(help="Modes.")] = "target-only,full",
    gamma: Annotated[
        str, typer.Option(help="Draft lengths; 'chosen': each session chooses its own.")
    ] = "chosen",
    rtt_ms: Annotated[str, typer.Option(help="Round trips in ms; clients get them in turn.")] = "40",
    jitter_ms: Annotated[float, typer.Option(min=0.0, help="Mean queueing delay each way, in ms.")] = 2.0,
    pass_ms: Annotated[float, typer.Option(min=0.001, help="Constant part of a forward pass, in ms.")] = 1.0,
    token_us: Annotated[float, typer.Option(min=0.0, help="Part per token, in µs.")] = 5.0,
    session_us: Annotated[
        float, typer.Option(min=0.0, help="Part per session (its keys and values), in µs.")
    ] = 55.0,
    encode_ms: Annotated[
        float, typer.Option(min=0.0, help="Encoding of a window, in ms; it runs beside forward passes.")
    ] = 12.0,
    draft_ms: Annotated[float, typer.Option(min=0.0, help="Constant part of a draft step, in ms.")] = 4.0,
    draft_session_us: Annotated[
        float, typer.Option(min=0.0, help="Part of a draft step per session, in µs.")
    ] = 500.0,
    draft_encode_ms: Annotated[
        float, typer.Option(min=0.0, help="Encoding of a window for the draft, in ms.")
    ] = 100.0,
    message_us: Annotated[
        float, typer.Option(min=0.0, help="CPU time of a message at each server, in µs.")
    ] = HANDLING_US,
    window_s: Annotated[float, typer.Option(min=0.1, help="Seconds of speech in a window.")] = 25.0,
    max_lag_s: Annotated[
        float, typer.Option(min=0.0, help="Largest acceptable 95th percentile of the lag, in s.")
    ] = 1.0,
    search: Annotated[
        bool, typer.Option("--search", help="Find the most clients with an acceptable lag, up to --clients.")
    ] = False,
    duration_s: Annotated[float, typer.Option(min=20.0, help="Simulated seconds.")] = 100.0,
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Audio = None,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Simulate many clients, draft servers and targets, with the service's own engines.

    Costs are given; the defaults are lower bounds of large-v3 in float16 on a large GPU and of a draft on a
    few cores. Text and errors are those of the pair.
    """
    console = open_console()
    try:
        if quick:
            clients, duration_s, search = "40", 60.0, False
        levels = parse_levels(clients)
        round_trips_s = tuple(ms / 1e3 for ms in parse_times(rtt_ms, "--rtt-ms"))
        trace = record(load_samples(audio), target=target, draft=draft, options=[OPTIONS])
        costs = Costs(
            target=Cost(pass_ms / 1e3, token_us / 1e6, session_us / 1e6),
            draft=Cost(draft_ms / 1e3, 0.0, draft_session_us / 1e6),
            target_encode_s=encode_ms / 1e3,
            draft_encode_s=draft_encode_ms / 1e3,
            message_s=MESSAGE_S,
            handling_s=message_us / 1e6,
        )

        def outcome(mode: Mode, length: int, num_clients: int) -> Simulated:
            population = Population(
                num_clients=num_clients,
                num_draft_servers=draft_servers or max(1, num_clients // 8),
                num_targets=targets,
                num_slots=slots,
                window_s=window_s,
                round_trips_s=round_trips_s,
                jitter_s=jitter_ms / 1e3,
            )
            drafted = DraftLength(mode, length or None)
            with console.status(f"{num_clients:,} clients, {mode} ..."):
                return run_scenario(Scenario(population, costs, drafted, duration_s, seed), trace)

        found: list[Simulated] = []
        for mode in parse_modes(modes):
            for length in parse_gammas(gamma) if mode.drafts else [CHOSEN]:
                run = partial(outcome, mode, length)
                found += most_clients(run, levels[-1], max_lag_s) if search else map(run, levels)
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    print_simulated(found, console, trace=trace, max_lag_s=max_lag_s)
    if json is not None:
        models = {"target": f"given cost, text of {target}", "draft": f"given cost, text of {draft}"}
        figures = {
            "costs": asdict(costs),
            "acceptance": acceptance_of(trace.decodings),
            "simulated": [one.facts() for one in found],
        }
        write_json(json, models=models, figures=figures)


def most_clients(run: Callable[[int], Simulated], limit: int, max_lag_s: float) -> list[Simulated]:
    """Find by bisection the most clients with an acceptable lag; return it and the next count.

    The two counts differ by at most a hundredth of the limit.
    """
    good, bad = 0, limit + 1
    seen: dict[int, Simulated] = {}
    for _ in range(SEARCHES):
        middle = (good + bad) // 2
        if middle in (good, bad):
            break
        seen[middle] = run(middle)
        if seen[middle].outcome.lag_s[1] <= max_lag_s:
            good = middle
        else:
            bad = middle
    return [seen[level] for level in (good, bad) if level in seen]
