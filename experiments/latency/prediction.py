"""Predict the cells of a grid by a simulation of the service's engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from experiments.common.replay.trace import Decoding, Trace
from experiments.latency.cells import TARGET_ONLY, Arm, Cell, Grid, Run
from experiments.latency.lab import PairCosts
from experiments.latency.simulation.scripted import Cost
from experiments.latency.simulation.world import Costs, simulate_session
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.hints import Hint
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode

MAX_RUN = 128  # tokens; longer runs count as this long


@dataclass(frozen=True)
class Predictor:
    """Costs and texts of a grid's recordings, from which decoding times follow.

    Attributes
    ----------
    costs : costs by recording: a draft that cuts windows encodes a short one sooner.
    """

    decodings: tuple[Decoding, ...]
    vocabulary: Vocabulary
    costs: dict[str, Costs]

    @staticmethod
    def of(grid: Grid) -> Predictor:
        """Fit the costs of forward passes and messages to a grid."""
        trace: Trace = grid.header["trace"]
        measured: PairCosts = grid.header["costs"]
        alone = [run for run in grid.runs if run.cell.arm == TARGET_ONLY]
        if not alone:
            raise ValueError("A grid without target-only has no predictions.")
        # Passes measured before, scaled to those of the runs: a shared machine changes its speed.
        (_, one_s), *_ = measured.forward_s
        scale = median(run.statistics["forward_ns"] / 1e9 / _passes(run) for run in alone) / one_s
        beside_s = median(
            run.facts["decoding_s"] / _passes(run) - run.statistics["forward_ns"] / 1e9 / _passes(run)
            for run in alone
        )
        passes = tuple((int(width), beside_s + scale * seconds) for width, seconds in measured.forward_s)
        costs = Costs(Cost(passes[0][1], measured=passes), Cost(_step_s(grid)), message_s=_message_s(grid))
        encode_s = {
            name: median(
                run.statistics["encode_ns"] / 1e9 / _windows(run) for run in alone if run.sample == name
            )
            for name in {run.sample for run in alone}
        }
        return Predictor(
            trace.decodings,
            load_checkpoint(trace.target).vocabulary,
            {
                name: replace(
                    costs, target_encode_s=each_s, draft_encode_s=measured.draft_encode_s.get(name, 0.0)
                )
                for name, each_s in encode_s.items()
            },
        )

    def simulated_s(self, arm: Arm, rtt_ms: float, sample: str) -> float:
        script = [i for i, decoding in enumerate(self.decodings) if decoding.recording == sample]
        costs = self.costs[sample]
        result = simulate_session(
            self.decodings,
            self.vocabulary,
            costs,
            DraftLength(arm.mode, arm.gamma or None),
            round_trip_s=rtt_ms / 1e3,
            script=script,
        )
        counts = result.statistics
        mean_pass_s = counts.forward_ns / 1e9 / max(1, counts.num_forwards)
        later_s = costs.target_encode_s * (len(script) - 1)
        return float(result.arrivals_s[-1] - result.arrivals_s[0] + mean_pass_s - later_s)

    def facts(self) -> dict[str, Any]:
        some = next(iter(self.costs.values()))
        return {
            "pass_ms": 1e3 * some.target.of(1, 1),
            "token_ms": 1e3 * (some.target.of(17, 1) - some.target.of(1, 1)) / 16,
            "draft_step_ms": 1e3 * some.draft.pass_s,
            "message_ms": 1e3 * some.message_s,
            "encode_ms": {name: 1e3 * each.target_encode_s for name, each in self.costs.items()},
            "draft_encode_ms": {name: 1e3 * each.draft_encode_s for name, each in self.costs.items()},
        }


def is_predicted(cell: Cell) -> bool:
    """Whether it is simulated: nothing overlaps in one process."""
    return cell.arm.mode not in (Mode.ONE_PROCESS, Mode.TARGET_ONLY) and not cell.arm.has_hint


def _message_s(grid: Grid) -> float:
    """Return a message's time beside the link, one way, from ``sync`` at the shortest round trip."""
    waiting = [run for run in grid.runs if run.cell.arm == Arm(Mode.SYNC)]
    if not waiting:
        return 0.0
    nearest_ms = min(run.cell.rtt_ms for run in waiting)
    on_the_way_s = median(
        run.statistics["network_ns"] / 1e9 / max(1, run.statistics["num_answers"])
        for run in waiting
        if run.cell.rtt_ms == nearest_ms
    )
    return max(0.0, on_the_way_s - nearest_ms / 1e3) / 2


def _step_s(grid: Grid) -> float:
    """Return the time of a draft step of ``sync``, whose steps only wait for themselves."""
    drafting = [run for run in grid.runs if run.statistics["num_draft_steps"]]
    waiting = [run for run in drafting if run.cell.arm.mode is Mode.SYNC] or drafting
    steps_s = [run.statistics["draft_ns"] / 1e9 / run.statistics["num_draft_steps"] for run in waiting]
    return median(steps_s) if steps_s else 0.0


def _passes(run: Run) -> int:
    return int(run.statistics["num_forwards"])


def _windows(run: Run) -> int:
    return max(1, int(run.statistics["num_windows"]))


def runs_of(decoding: Decoding) -> Iterator[int]:
    """Yield the number of tokens of each run: from a correction or the window's start to the next."""
    run = 0
    for position in range(len(decoding.tokens)):
        run += 1
        if position in decoding.divergences or run == MAX_RUN + 1:
            yield run
            run = 0
    if run:
        yield run


def realigned_of(decodings: Iterable[Decoding]) -> float:
    """Return how often what the draft wrote after a wrong token continues the text after its correction."""
    judged = []
    for decoding in decodings:
        for position, continuation in decoding.divergences.items():
            if position + 1 < len(decoding.tokens):
                hint = Hint(continuation, str)
                hint.follow(decoding.tokens[position])
                judged.append(list(hint.continuation(max_tokens=1)) == [decoding.tokens[position + 1]])
    return float(np.mean(judged)) if judged else 0.0


def acceptance_of(decodings: Sequence[Decoding]) -> float:
    num_tokens = sum(len(decoding.tokens) for decoding in decodings)
    return 1 - sum(len(decoding.divergences) for decoding in decodings) / num_tokens


def mean_run_of(decodings: Iterable[Decoding]) -> float:
    return float(np.mean([run - 1 for decoding in decodings for run in runs_of(decoding)]))
