"""Simulate a pair of models on machines of given costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import Pool

from rich.console import Console
from rich.progress import track

from experiments.common.audio.conditions import Condition
from experiments.common.replay.trace import Trace
from experiments.latency.mechanisms import MECHANISMS
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs, simulate_session, simulate_together
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode

MS = 1e-3
NUM_WINDOWS = 4  # per session, where there are many


@dataclass(frozen=True, slots=True)
class Place:
    """Machines and their sessions.

    Attributes
    ----------
    num_sessions : on one target; one alone is followed from its first commit to its last.
    per_draft_server : sessions that share a draft server.
    """

    costs: Costs
    num_sessions: int = 1
    per_draft_server: int = 1


@dataclass(frozen=True, slots=True)
class Job:
    """A simulation in a process of its own; ``without`` names the mechanism that is off."""

    place: Place
    condition: Condition
    mode: Mode
    rtt_ms: float
    seed: int
    without: str | None = None

    def run(self, trace: Trace, vocabulary: Vocabulary) -> float:
        """Return the seconds per token; of a crowd, those of all its sessions together."""
        length, round_trip_s, place = DraftLength(self.mode, None), self.rtt_ms / 1e3, self.place
        with nullcontext() if self.without is None else MECHANISMS[self.without].switched_off():
            if place.num_sessions == 1:
                return simulate_session(
                    trace.decodings,
                    vocabulary,
                    place.costs,
                    length,
                    round_trip_s=round_trip_s,
                    seed=self.seed,
                ).time_per_token_s
            return 1 / simulate_together(
                trace.decodings,
                vocabulary,
                place.costs,
                length,
                num_sessions=place.num_sessions,
                per_draft_server=place.per_draft_server,
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


LAPTOP = Cost(3 * MS, 0.0, 0.3 * MS)  # whisper-tiny in int8
H200 = Cost(2.7 * MS, 0.005 * MS, 0.05 * MS)  # large-v3: 2.75 ms a token by sglang-omni's measurement
PLACES = {
    # base in float32 and tiny.en in int8, a core each: docs/measurements.md
    "one session, CPU cores": Place(Costs(Cost(16.8 * MS, 0.9 * MS), Cost(5.6 * MS), message_s=0.8 * MS)),
    "eight sessions, CPU cores": Place(
        Costs(Cost(5 * MS, 0.9 * MS, 8 * MS), Cost(3 * MS, 0.0, 2.6 * MS), handling_s=0.1 * MS), 8, 4
    ),
    "one session, H200 and laptop": Place(Costs(H200, LAPTOP, message_s=0.2 * MS)),
    "32 sessions, H200 and laptops": Place(Costs(H200, LAPTOP, handling_s=0.1 * MS), 32, 1),
    "32 sessions, slower GPU and four to a draft server": Place(
        Costs(Cost(8 * MS, 0.005 * MS, 0.055 * MS), Cost(2 * MS, 0.0, 0.2 * MS), handling_s=0.1 * MS), 32, 4
    ),
}
