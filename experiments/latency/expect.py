"""``expect``: large-v3 on a GPU, simulated: which split gains what, by round trip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from multiprocessing import Pool
from statistics import fmean
from typing import Any, NamedTuple

from rich.progress import track
from rich.table import Table

from experiments.common.audio.conditions import Condition
from experiments.common.audio.samples import load_samples
from experiments.common.bench.program import Audio, Draft, Program, Target, program
from experiments.common.replay.trace import Trace
from experiments.latency.lab import Pair, spoken_in
from experiments.latency.prediction import acceptance_of
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs, simulate_session, simulate_together
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode

MODES = (Mode.SYNC, Mode.PIPELINED, Mode.FULL)
H200 = Cost(2.7e-3, 0.005e-3, 0.05e-3)  # large-v3: 2.75 ms a token by sglang-omni's measurement
ENCODE_S = 0.012
# A draft of tiny's shape on a laptop, for each session; and one on the target's GPU, which is assumed.
SPLIT = Costs(H200, Cost(3e-3), target_encode_s=ENCODE_S, draft_encode_s=0.1, handling_s=1e-4)
ON_THE_GPU = Costs(H200, Cost(0.5e-3), target_encode_s=ENCODE_S)
BESIDE = "both on the GPU"
NUM_SESSIONS = 32  # that share a target
NUM_SEEDS = 3  # for the runs in which they do
ROUND_TRIPS_MS = [0.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0]
NUM_WINDOWS = 4  # per session, where there are many


class Job(NamedTuple):
    """A simulation in a process of its own; one session alone is followed from first commit to last."""

    costs: Costs
    num_sessions: int
    condition: Condition
    mode: Mode
    rtt_ms: float
    seed: int = 0


@program
def expect(
    given: Program,
    target: Target = "base",
    draft: Draft = "tiny.en",
    audio: Audio = None,
) -> None:
    """Simulate one session and many, by round trip and mode, with the service's own engines.

    Costs are given: large-v3 on an H200 (2.75 ms a token, measured by sglang-omni) with tiny on a laptop for
    each session; a draft beside the target on its GPU is assumed. Text and errors are those that the pair has
    in each condition. Every simulated text is compared with the target's.
    """
    conditions = given.choose([Condition.CLEAN], list(Condition))
    round_trips_ms = given.choose([0.0, 100.0], ROUND_TRIPS_MS)
    spoken = spoken_in(load_samples(audio)[: given.choose(2, None)], conditions, given.seed)
    pair = Pair(target, draft)
    traces = {condition: pair.record(samples) for condition, samples in spoken.items()}
    jobs = []
    for condition in conditions:
        for ms in round_trips_ms:
            jobs += [Job(SPLIT, 1, condition, mode, ms, given.seed) for mode in (Mode.TARGET_ONLY, *MODES)]
            jobs += [
                Job(SPLIT, NUM_SESSIONS, condition, mode, ms, given.seed + each)
                for mode in (Mode.TARGET_ONLY, Mode.FULL)
                for each in range(NUM_SEEDS)
            ]
        jobs.append(Job(ON_THE_GPU, 1, condition, Mode.SYNC, 0.0, given.seed))
    found: dict[Job, list[float]] = {}
    for job, time_s in zip(jobs, simulated_s(jobs, traces, given), strict=True):
        found.setdefault(job._replace(seed=0), []).append(time_s)

    def row(condition: Condition, ms: float) -> dict[str, float]:
        def over(mode: Mode, num_sessions: int = 1) -> float:
            here, alone = (Job(SPLIT, num_sessions, condition, each, ms) for each in (mode, Mode.TARGET_ONLY))
            return fmean(found[here]) / fmean(found[alone])

        beside_s = fmean(found[Job(ON_THE_GPU, 1, condition, Mode.SYNC, 0.0)])
        return {
            "rtt_ms": ms,
            **{str(mode): over(mode) for mode in MODES},
            BESIDE: beside_s / fmean(found[Job(SPLIT, 1, condition, Mode.TARGET_ONLY, ms)]),
            f"{NUM_SESSIONS} sessions, full": over(Mode.FULL, NUM_SESSIONS),
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
    costs = {"split": asdict(SPLIT), "both_on_the_gpu": asdict(ON_THE_GPU), "windows": NUM_WINDOWS}
    names = {"target": f"given cost, text of {target}", "draft": f"given cost, text of {draft}"}
    given.end(names, {"costs": costs, "sessions": NUM_SESSIONS, "expected": tables})


def simulated_s(jobs: list[Job], traces: Mapping[Condition, Trace], given: Program) -> list[float]:
    """Run simulations on all cores; return their seconds per token, of all sessions together."""
    vocabulary = load_checkpoint(next(iter(traces.values())).target).vocabulary
    work = [(job, traces[job.condition], vocabulary) for job in jobs]
    with Pool() as pool:
        times_s = pool.imap(_simulate, work)
        return list(track(times_s, "simulating", len(work), console=given.console, transient=True))


def _simulate(work: tuple[Job, Trace, Vocabulary]) -> float:
    job, trace, vocabulary = work
    texts = trace.decodings, vocabulary, job.costs, DraftLength(job.mode, None)
    settings = {"round_trip_s": job.rtt_ms / 1e3, "seed": job.seed}
    if job.num_sessions == 1:
        return simulate_session(*texts, **settings).time_per_token_s
    crowd = {"num_sessions": job.num_sessions, "per_draft_server": 1, "num_windows": NUM_WINDOWS}
    return 1 / simulate_together(*texts, **crowd, **settings)
