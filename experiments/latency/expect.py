"""``expect``: models of any cost, simulated: which split gains what, by round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import Pool
from statistics import fmean
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from experiments.common.audio.conditions import Condition
from experiments.common.audio.samples import load_samples
from experiments.common.bench.program import Audio, Draft, Program, Target, program
from experiments.common.replay.trace import Trace
from experiments.latency.cells import parse_round_trips
from experiments.latency.lab import DraftDtype, Pair, spoken_in
from experiments.latency.prediction import acceptance_of
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs, simulate_session, simulate_together
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode

MODES = (Mode.SYNC, Mode.PIPELINED, Mode.FULL)
HANDLING_S = 0.0001  # CPU time of a message at each server
NUM_SEEDS = 3  # for the runs in which sessions share a target
BESIDE = "both on the GPU"
H200 = Cost(2.7e-3, 0.005e-3, 0.05e-3)  # large-v3: 2.75 ms a token by sglang-omni's measurement
NUM_WINDOWS = 4  # per session, where there are many


@dataclass(frozen=True, slots=True)
class Place:
    """Machines and the sessions of one target; one alone is followed from its first commit to its last."""

    costs: Costs
    num_sessions: int = 1


@dataclass(frozen=True, slots=True)
class Job:
    """A simulation in a process of its own."""

    place: Place
    condition: Condition
    mode: Mode
    rtt_ms: float
    seed: int

    def run(self, trace: Trace, vocabulary: Vocabulary) -> float:
        """Return the seconds per token; of a crowd, those of all its sessions together."""
        length, round_trip_s, place = DraftLength(self.mode, None), self.rtt_ms / 1e3, self.place
        texts = trace.decodings, vocabulary, place.costs, length
        if place.num_sessions == 1:
            return simulate_session(*texts, round_trip_s=round_trip_s, seed=self.seed).time_per_token_s
        return 1 / simulate_together(
            *texts,
            num_sessions=place.num_sessions,
            per_draft_server=1,
            num_windows=NUM_WINDOWS,
            round_trip_s=round_trip_s,
            seed=self.seed,
        )


def run_all(jobs: Sequence[Job], traces: Mapping[Condition, Trace], console: Console) -> list[float]:
    """Run simulations on all cores; return their seconds per token."""
    vocabulary = load_checkpoint(next(iter(traces.values())).target).vocabulary
    work = [(job, traces[job.condition], vocabulary) for job in jobs]
    with Pool() as pool:
        times_s = pool.imap(_run, work)
        return list(track(times_s, "simulating", len(work), console=console, transient=True))


def _run(work: tuple[Job, Trace, Vocabulary]) -> float:
    job, trace, vocabulary = work
    return job.run(trace, vocabulary)


@program
def expect(
    given: Program,
    rtt_ms: Annotated[str, typer.Option(help="Round trips in milliseconds.")] = "0,5,10,25,50,100,200,400",
    pass_ms: Annotated[
        float, typer.Option(min=0.001, help="A forward pass, its constant part, in ms.")
    ] = 2.7,
    encode_ms: Annotated[float, typer.Option(min=0.0, help="Encoding of a window, in ms.")] = 12.0,
    draft_ms: Annotated[float, typer.Option(min=0.0, help="A draft step, in ms.")] = 3.0,
    draft_encode_ms: Annotated[
        float, typer.Option(min=0.0, help="Encoding of a window for the draft, in ms.")
    ] = 100.0,
    beside_ms: Annotated[
        float, typer.Option(min=0.0, help="A draft step on the target's GPU, of one session, in ms.")
    ] = 0.5,
    sessions: Annotated[int, typer.Option(min=2, help="Sessions that share the target.")] = 32,
    target: Target = "base",
    draft: Draft = "tiny.en",
    draft_dtype: DraftDtype = "int8",
    audio: Audio = None,
) -> None:
    """Simulate one session and many, by round trip and mode, with the service's own engines.

    Costs are given. The defaults are large-v3 on an H200 (2.75 ms a token, measured by sglang-omni) with tiny
    on a laptop for each session; a draft beside the target on its GPU is assumed. Text and errors are those
    that the pair has in each condition. Every simulated text is compared with the target's.
    """
    seed, conditions = given.seed, given.choose([Condition.CLEAN], list(Condition))
    round_trips_ms = parse_round_trips(given.choose("0,100", rtt_ms))
    spoken = spoken_in(load_samples(audio)[: given.choose(2, None)], conditions, seed)
    pair = Pair(target, draft, draft_dtype)
    traces = {condition: pair.record(samples) for condition, samples in spoken.items()}
    cost = Cost(pass_ms / 1e3, H200.token_s, H200.session_s)
    split = Costs(
        cost,
        Cost(draft_ms / 1e3),
        target_encode_s=encode_ms / 1e3,
        draft_encode_s=draft_encode_ms / 1e3,
        handling_s=HANDLING_S,
    )
    one, many = Place(split), Place(split, sessions)
    beside = Place(Costs(cost, Cost(beside_ms / 1e3), target_encode_s=encode_ms / 1e3))
    jobs = []
    for condition in conditions:
        for ms in round_trips_ms:
            jobs += [Job(one, condition, mode, ms, seed) for mode in (Mode.TARGET_ONLY, *MODES)]
            jobs += [
                Job(many, condition, mode, ms, seed + each)
                for mode in (Mode.TARGET_ONLY, Mode.FULL)
                for each in range(NUM_SEEDS)
            ]
        jobs.append(Job(beside, condition, Mode.SYNC, 0.0, seed))
    found: dict[tuple[Place, Condition, Mode, float], list[float]] = {}
    for job, time_s in zip(jobs, run_all(jobs, traces, given.console), strict=True):
        found.setdefault((job.place, job.condition, job.mode, job.rtt_ms), []).append(time_s)

    def row(condition: Condition, ms: float) -> dict[str, float]:
        def over(place: Place, mode: Mode, at_ms: float, reference: Place) -> float:
            alone_s = fmean(found[reference, condition, Mode.TARGET_ONLY, ms])
            return fmean(found[place, condition, mode, at_ms]) / alone_s

        return {
            "rtt_ms": ms,
            **{str(mode): over(one, mode, ms, one) for mode in MODES},
            BESIDE: over(beside, Mode.SYNC, 0.0, one),
            f"{sessions} sessions, full": over(many, Mode.FULL, ms, many),
        }

    tables: list[dict[str, Any]] = [
        {
            "condition": condition,
            "acceptance": acceptance_of(traces[condition].decodings),
            "rows": [row(condition, ms) for ms in round_trips_ms],
        }
        for condition in conditions
    ]
    for each in tables:
        title = f"{each['condition']}, {each['acceptance']:.0%} accepted: simulated time over target-only"
        table = Table(*each["rows"][0], title=title, title_justify="left")
        for ms, *ratios in (cells.values() for cells in each["rows"]):
            table.add_row(f"{ms:g}", *(f"{ratio:.2f}" for ratio in ratios))
        given.console.print(table)
    costs = {"split": asdict(split), "both_on_the_gpu": asdict(beside.costs), "windows": NUM_WINDOWS}
    names = {"target": f"given cost, text of {target}", "draft": f"given cost, text of {draft}"}
    given.end(names, {"costs": costs, "sessions": sessions, "expected": tables})
