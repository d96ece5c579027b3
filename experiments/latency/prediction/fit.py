"""Fit the costs of forward passes, draft steps and messages to a sweep's runs; count acceptance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

import numpy as np

from experiments.common.replay.trace import Decoding
from experiments.latency.cells import Arm
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs
from experiments.latency.sweep.store import Run, Sweep
from specwhisper.speculation import theory
from specwhisper.speculation.hints.hint import PLAIN, Hint
from specwhisper.types import Mode

OVERLAPPING = (Mode.PIPELINED, Mode.FULL)  # modes in which the draft drafts beside forward passes
MAX_RUN = 128  # tokens; longer runs count as this long


def fit_costs(sweep: Sweep, runs: Sequence[Run] | None = None) -> Costs:
    """Fit a simulation's costs to the session statistics of some or all runs.

    The constant and the per-token part of a forward pass come from all runs by least squares, or all of it
    from what was measured before the sweep, scaled to target-only's forward passes; what a turn takes beside
    its forward pass, from target-only; the draft step, from the sessions' own estimates; the time of a
    message, from the shortest round trip of ``sync``; how a draft that drafts slows forward passes, from
    the modes in which it does.
    """
    runs = [run for run in runs or sweep.runs if run.cell.mode is not Mode.ONE_PROCESS]
    alone = [run for run in runs if run.cell.arm == Arm(Mode.TARGET_ONLY)]
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
    draft_s = _median(map(_draft_step_s, waiting or drafting))
    target = Cost(
        float(pass_s) + beside_s,
        max(0.0, float(token_s)),
        measured=_scaled(sweep.header.get("forward_s", ()), alone, beside_s),
    )
    return Costs(
        target=target,
        draft=Cost(draft_s),
        message_s=_message_s(sweep, waiting),
        overlap=_overlap(target, [run for run in drafting if run.cell.mode in OVERLAPPING], beside_s),
    )


def _overlap(target: Cost, runs: Sequence[Run], beside_s: float) -> float:
    """Return the time of forward passes beside a draft that drafts, over that of others; 1 without any.

    Both share the machine's memory.
    """
    found = [
        (beside_s + run.statistics["forward_ns"] / 1e9 / _passes(run))
        / target.of(_tokens(run) / _passes(run), 1)
        for run in runs
    ]
    return max(1.0, _median(found)) if found else 1.0


def _scaled(
    forward_s: Sequence[tuple[int, float]], alone: Sequence[Run], beside_s: float
) -> tuple[tuple[int, float], ...]:
    """Scale measured forward passes to those of target-only, and add what a turn takes beside them."""
    if not forward_s or not alone:
        return ()
    (_, one_s), *_ = forward_s
    scale = _median(run.statistics["forward_ns"] / 1e9 / _passes(run) for run in alone) / one_s
    return tuple((width, beside_s + scale * seconds) for width, seconds in forward_s)


def _message_s(sweep: Sweep, waiting: Sequence[Run]) -> float:
    """Return a message's time beside the link, from ``sync`` runs; 0 without any."""
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
    """Return the median, or 0 of no values."""
    found = list(values)
    return median(found) if found else 0.0


def runs_beside(sweep: Sweep, repeat: int, round_trip: int) -> Sequence[Run]:
    """Return a repeat's runs at a round trip, or all runs where these are too few.

    A shared machine changes its speed from hour to hour, and these runs were taken within minutes.
    """
    runs = [run for run in sweep.runs if (run.repeat, run.cell.round_trip) == (repeat, round_trip)]
    modes = {run.cell.mode for run in runs}
    return runs if {Mode.TARGET_ONLY, Mode.SYNC} <= modes else sweep.runs


def _draft_step_s(run: Run) -> float:
    return float(run.statistics["draft_ns"] / 1e9 / run.statistics["num_draft_steps"])


def _passes(run: Run) -> int:
    return int(run.statistics["num_forwards"])


def _tokens(run: Run) -> int:
    """Count the tokens of all forward passes: each session's last one, and candidates of every source."""
    return _passes(run) + int(run.statistics["num_verified"] + run.statistics["num_hinted"])


def theory_costs(costs: Costs, round_trip_s: float) -> theory.Costs:
    """Convert costs to those of the closed forms."""
    return theory.Costs(
        draft_s=costs.draft.pass_s,
        forward_s=costs.target.pass_s,
        forward_token_s=costs.target.token_s,
        round_trip_s=round_trip_s + 2 * costs.message_s,
    )


def runs_of(decoding: Decoding, gamma: int | None = None) -> Iterator[int]:
    """Yield the number of tokens of each run: from a correction or the window's start to the next.

    With a ``gamma``, a run also ends after so many candidates, as where blocks wait for each other.
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
    """Return how often the first i tokens of a draft are all right, by i.

    Parameters
    ----------
    first : most tokens of a recording's first commit. A run that ends with it is left out, since time per
        token counts from there.
    """
    lengths: list[int] = []
    begun: set[str] = set()
    for decoding in decodings:
        runs = list(runs_of(decoding, gamma))
        is_begun = decoding.recording in begun or runs[0] > first or len(runs) == 1
        lengths += runs if is_begun else runs[1:]
        begun.add(decoding.recording)
    return _survival(lengths)


def _survival(lengths: Sequence[int]) -> list[float]:
    return [float(np.mean(np.array(lengths) > i)) for i in range(max(lengths))]


def realigned_of(decodings: Iterable[Decoding]) -> float:
    """Return how often what the draft wrote after a wrong token continues the text after its correction."""
    judged = []
    for decoding in decodings:
        for position, continuation in decoding.divergences.items():
            if position + 1 < len(decoding.tokens):
                hint = Hint(continuation, PLAIN.word_of)
                hint.follow(decoding.tokens[position])
                judged.append(list(hint.continuation(max_tokens=1)) == [decoding.tokens[position + 1]])
    return float(np.mean(judged)) if judged else 0.0


def acceptance_of(decodings: Sequence[Decoding]) -> float:
    """Return the share of positions at which the draft is right."""
    num_tokens = sum(len(decoding.tokens) for decoding in decodings)
    return 1 - sum(len(decoding.divergences) for decoding in decodings) / num_tokens
