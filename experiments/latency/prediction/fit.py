"""What passes, steps and messages cost, from the runs of a sweep; and how often the draft was right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

import numpy as np

from experiments.common.replay.trace import Decoding
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs
from experiments.latency.sweep.store import Run, Sweep
from specwhisper.speculation import theory
from specwhisper.types import Mode

MAX_RUN = 128  # tokens; longer ones count as such


def fit_costs(sweep: Sweep, runs: Sequence[Run] | None = None) -> Costs:
    """Fit what a simulation needs to what sessions counted, in some runs of a sweep or in all.

    A pass's constant and its tokens come from all runs by least squares; what a pass takes beside its forward
    pass, from the target alone; a draft's step from sessions that sent all they drafted; and a message from
    the shortest round trip, where blocks wait for each other.
    """
    runs = [run for run in runs or sweep.runs if run.cell.mode is not Mode.ONE_PROCESS]
    alone = [run for run in runs if run.cell.mode is Mode.TARGET_ONLY]
    drafting = [run for run in runs if run.statistics["num_drafted"]]
    waiting = [run for run in drafting if run.cell.mode is Mode.SYNC]
    passes, tokens, forward_s = (
        np.array([value(run) for run in runs], float)
        for value in (_passes, _tokens, lambda run: run.statistics["forward_ns"] / 1e9)
    )
    (pass_s, token_s), *_ = np.linalg.lstsq(np.stack([passes, tokens], axis=1), forward_s, rcond=None)
    beside_s = _median(
        run.time_per_token_s - run.statistics["forward_ns"] / 1e9 / _passes(run) for run in alone
    )
    draft_s = _median(
        run.statistics["draft_ns"] / 1e9 / run.statistics["num_drafted"] for run in waiting or drafting
    )
    return Costs(
        target=Cost(float(pass_s) + beside_s, max(0.0, float(token_s))),
        draft=Cost(draft_s),
        message_s=_message_s(sweep, waiting),
    )


def _message_s(sweep: Sweep, waiting: Sequence[Run]) -> float:
    """Give what a message takes beside the link, by sessions whose blocks wait for each other; else 0."""
    if not waiting:
        return 0.0
    nearest = min((run.cell.round_trip for run in waiting), key=lambda place: sweep.round_trips_s[place])
    on_the_way_s = _median(
        run.statistics["network_ns"] / 1e9 / max(1, run.statistics["num_answers"])
        for run in waiting
        if run.cell.round_trip == nearest
    )
    known_s = sweep.round_trips_s[nearest] + 2 * sweep.header["conditions"].get("jitter_s", 0.0)
    return max(0.0, on_the_way_s - known_s) / 2


def _median(values: Iterable[float]) -> float:
    """Give the median; 0 of nothing."""
    found = list(values)
    return median(found) if found else 0.0


def runs_beside(sweep: Sweep, repeat: int, round_trip: int) -> Sequence[Run]:
    """Give the runs of a repeat at a round trip, which were taken within minutes; all, if these are too few.

    A shared machine changes its speed from hour to hour: a run is predicted from what was measured beside it.
    """
    runs = [run for run in sweep.runs if (run.repeat, run.cell.round_trip) == (repeat, round_trip)]
    modes = {run.cell.mode for run in runs}
    return runs if {Mode.TARGET_ONLY, Mode.SYNC} <= modes else sweep.runs


def _passes(run: Run) -> int:
    return int(run.statistics["num_forwards"])


def _tokens(run: Run) -> int:
    """Count what passes were fed: each session's last token, and its candidates."""
    return _passes(run) + int(run.statistics["num_verified"])


def theory_costs(costs: Costs, round_trip_s: float) -> theory.Costs:
    """Give the same as the closed forms take it."""
    return theory.Costs(
        draft_s=costs.draft.pass_s,
        forward_s=costs.target.pass_s,
        forward_token_s=costs.target.token_s,
        round_trip_s=round_trip_s + 2 * costs.message_s,
    )


def runs_of(decoding: Decoding, gamma: int | None = None) -> Iterator[int]:
    """Give the tokens of each run of a window: from a correction, or the window's begin, to the next one.

    With a ``gamma``, a run ends behind so many candidates too, as where blocks wait for each other.
    """
    run = 0
    for position in range(len(decoding.tokens)):
        run += 1
        if position in decoding.divergences or run == (gamma or MAX_RUN) + 1:
            yield run
            run = 0
    if run:
        yield run


def survival_of(decodings: Iterable[Decoding], gamma: int | None = None, *, first: int = 0) -> list[float]:
    """Count how often the first i tokens of a draft are all right, over the runs of :func:`runs_of`.

    Parameters
    ----------
    first : most tokens of a recording's first commit: a run that ends with it is left out, as time per token
        counts from there.
    """
    lengths: list[int] = []
    begun: set[str] = set()
    for decoding in decodings:
        runs = list(runs_of(decoding, gamma))
        is_begun = decoding.recording in begun or runs[0] > first or len(runs) == 1
        lengths += runs if is_begun else runs[1:]
        begun.add(decoding.recording)
    return [float(np.mean(np.array(lengths) > i)) for i in range(max(lengths))]


def acceptance_of(decodings: Sequence[Decoding]) -> float:
    """Tell at how many positions the draft is right."""
    num_tokens = sum(len(decoding.tokens) for decoding in decodings)
    return 1 - sum(len(decoding.divergences) for decoding in decodings) / num_tokens
