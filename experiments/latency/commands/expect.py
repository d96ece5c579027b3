"""``expect``: models of any cost, simulated: which split gains what, by round trip."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from multiprocessing import Pool
from typing import Annotated, Any

import typer
from rich.progress import track
from rich.table import Table

from experiments.common.audio.conditions import Condition
from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Audio, Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, write_json
from experiments.common.replay.trace import Trace
from experiments.latency.ablation.simulated import NUM_WINDOWS, Place
from experiments.latency.cells import parse_times
from experiments.latency.commands.sweep import DraftDtype
from experiments.latency.grid import spoken_in
from experiments.latency.pair import Pair, record_pair
from experiments.latency.prediction import acceptance_of
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode

MODES = (Mode.SYNC, Mode.PIPELINED, Mode.FULL)
NUM_SEEDS = 3  # for the runs in which sessions share a target


@dataclass(frozen=True, slots=True)
class Job:
    """A simulation in a process of its own."""

    condition: Condition
    name: str
    rtt_ms: float
    place: Place
    mode: Mode
    seed: int

    def run(self, trace: Trace, vocabulary: Vocabulary) -> float:
        """Return seconds per token."""
        return self.place.time_s(trace.decodings, vocabulary, self.mode, self.rtt_ms / 1e3, self.seed)


def _run(work: tuple[Job, Trace, Vocabulary]) -> float:
    job, trace, vocabulary = work
    return job.run(trace, vocabulary)


def expect(
    rtt_ms: Annotated[str, typer.Option(help="Round trips in milliseconds.")] = "0,5,10,25,50,100,200,400",
    pass_ms: Annotated[
        float, typer.Option(min=0.001, help="A forward pass, its constant part, in ms.")
    ] = 2.7,
    token_us: Annotated[float, typer.Option(min=0.0, help="Part of each token, in µs.")] = 5.0,
    session_us: Annotated[float, typer.Option(min=0.0, help="Part of each session, in µs.")] = 50.0,
    encode_ms: Annotated[float, typer.Option(min=0.0, help="Encoding of a window, in ms.")] = 12.0,
    draft_ms: Annotated[float, typer.Option(min=0.0, help="A draft step, in ms.")] = 3.0,
    draft_encode_ms: Annotated[
        float, typer.Option(min=0.0, help="Encoding of a window for the draft, in ms.")
    ] = 100.0,
    beside_ms: Annotated[
        float, typer.Option(min=0.0, help="A draft step on the target's GPU, of one session, in ms.")
    ] = 0.5,
    message_us: Annotated[
        float, typer.Option(min=0.0, help="CPU time of a message at each server, in µs.")
    ] = 100.0,
    sessions: Annotated[int, typer.Option(min=2, help="Sessions that share the target.")] = 32,
    target: Target = "base",
    draft: Draft = "tiny.en",
    draft_dtype: DraftDtype = "int8",
    audio: Audio = None,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Simulate one session and many, by round trip and mode, with the service's own engines.

    Costs are given. The defaults are large-v3 on an H200 (2.75 ms a token, measured by sglang-omni) with tiny
    on a laptop for each session; a draft beside the target on its GPU is assumed. Text and errors are those
    that the pair has in each condition. Every simulated text is compared with the target's.
    """
    console = open_console()
    try:
        round_trips_ms = parse_times("0,100" if quick else rtt_ms, "--rtt-ms")
        conditions = [Condition.CLEAN] if quick else list(Condition)
        spoken = spoken_in(load_samples(audio)[: 2 if quick else None], conditions, seed)
        traces = {
            condition: record_pair(Pair(target, draft, draft_dtype), samples)
            for condition, samples in spoken.items()
        }
        vocabulary = load_checkpoint(target).vocabulary
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    cost = Cost(pass_ms / 1e3, token_us / 1e6, session_us / 1e6)
    split = Costs(
        cost,
        Cost(draft_ms / 1e3),
        target_encode_s=encode_ms / 1e3,
        draft_encode_s=draft_encode_ms / 1e3,
        handling_s=message_us / 1e6,
    )
    one, many = Place(split), Place(split, sessions, 1)
    beside = Place(Costs(cost, Cost(beside_ms / 1e3), target_encode_s=encode_ms / 1e3))
    jobs = []
    for condition in conditions:
        for ms in round_trips_ms:
            jobs += [Job(condition, str(mode), ms, one, mode, seed) for mode in (Mode.TARGET_ONLY, *MODES)]
            jobs += [
                Job(condition, f"{sessions} sessions, {mode}", ms, many, mode, seed + each)
                for mode in (Mode.TARGET_ONLY, Mode.FULL)
                for each in range(NUM_SEEDS)
            ]
        jobs.append(Job(condition, "both on the GPU", 0.0, beside, Mode.SYNC, seed))
    with Pool() as pool:
        work = [(job, traces[job.condition], vocabulary) for job in jobs]
        shown = track(pool.imap(_run, work), "simulating", len(work), console=console, transient=True)
        times_s: dict[tuple[Condition, str, float], list[float]] = {}
        for job, time_s in zip(jobs, shown, strict=True):
            times_s.setdefault((job.condition, job.name, job.rtt_ms), []).append(time_s)
    tables: list[dict[str, Any]] = [
        {
            "condition": condition,
            "acceptance": acceptance_of(traces[condition].decodings),
            "rows": [_row(times_s, condition, ms, sessions) for ms in round_trips_ms],
        }
        for condition in conditions
    ]
    for each in tables:
        speech = f"{each['condition']}, {each['acceptance']:.0%} accepted"
        title = f"Simulated, {speech}: time per token over target-only"
        table = Table(title=title, title_justify="left")
        for name in each["rows"][0]:
            table.add_column(name, justify="right")
        for row in each["rows"]:
            table.add_row(
                *(f"{value:.2f}" if name != "rtt_ms" else f"{value:g}" for name, value in row.items())
            )
        console.print(table)
    if json is not None:
        costs = {"split": asdict(split), "both_on_the_gpu": asdict(beside.costs), "windows": NUM_WINDOWS}
        models = {"target": f"given cost, text of {target}", "draft": f"given cost, text of {draft}"}
        write_json(json, models=models, figures={"costs": costs, "sessions": sessions, "expected": tables})


def _row(
    times_s: dict[tuple[Condition, str, float], list[float]], condition: Condition, ms: float, sessions: int
) -> dict[str, Any]:
    def of(name: str, at_ms: float = ms) -> float:
        found = times_s[condition, name, at_ms]
        return sum(found) / len(found)

    alone_s, crowd_s = of(Mode.TARGET_ONLY), of(f"{sessions} sessions, {Mode.TARGET_ONLY}")
    return {
        "rtt_ms": ms,
        **{str(mode): of(mode) / alone_s for mode in MODES},
        "both on the GPU": of("both on the GPU", 0.0) / alone_s,
        f"{sessions} sessions, full": of(f"{sessions} sessions, {Mode.FULL}") / crowd_s,
    }
