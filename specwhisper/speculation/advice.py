"""Advice of ``specwhisper tune``: the best measured mode, estimates elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specwhisper.errors import SpecWhisperError
from specwhisper.speculation.comparison import Measured, Round, compare
from specwhisper.speculation.draft_length import MAX_CHOSEN_GAMMA
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.speculation.theory import Costs, best_gamma, full_s, pipelined_s, sync_s
from specwhisper.types import Mode

ELSEWHERE_S = (0.001, 0.003, 0.01, 0.03, 0.1)  # round trips to estimate
MAX_RUN = 64  # tokens of a draft that are right one after another


@dataclass(frozen=True, slots=True)
class Expected:
    """Estimates for a round trip, by closed form.

    Attributes
    ----------
    gamma : the best fixed gamma in ``sync``.
    times_s : seconds of decoding per token, by mode; in ``sync`` with that gamma.
    """

    round_trip_s: float
    gamma: int
    times_s: Mapping[Mode, float]


@dataclass(frozen=True, slots=True)
class Advice:
    """The mode to run over this link.

    Attributes
    ----------
    measured : every mode, the fastest first.
    best, reason : the mode to run, and why.
    costs : of link and models, means over the sessions of ``sync``.
    here, elsewhere : estimates for the round trip of this link and for others.
    one_process : the same without a round trip, with both models on the target's machine, if a draft step
        takes the same time there.
    """

    measured: tuple[Measured, ...]
    best: Measured
    reason: str
    costs: Costs
    here: Expected
    elsewhere: tuple[Expected, ...]
    one_process: Expected


def advise(rounds: Sequence[Round]) -> Advice:
    """Advise on a link and a pair of models.

    The times of the parts are those of ``sync``: there a round trip contains a single block. The acceptance
    in blocks is that of ``sync`` too. The acceptance in runs, for ``pipelined`` and ``full``, is that of
    ``pipelined``, whose target never gets ahead of the draft. A draft is taken to be right equally often at
    every position.

    Raises
    ------
    InvalidRequest
        for fewer than two rounds.
    SpecWhisperError
        if too little was drafted to estimate anything.
    """
    measured = compare(rounds)
    blocks, runs = (_total(rounds, mode) for mode in (Mode.SYNC, Mode.PIPELINED))
    costs, block_size = _costs(blocks), measured[Mode.PIPELINED].gamma or 1

    def at(round_trip_s: float) -> Expected:
        return expect(
            replace(costs, round_trip_s=round_trip_s),
            _survival(blocks),
            _survival(runs),
            block_size,
            realigned=runs.num_realigned / runs.num_corrections if runs.num_corrections else 0.0,
        )

    best, reason = _decide(measured)
    return Advice(
        measured=tuple(sorted(measured.values(), key=_time_s)),
        best=best,
        reason=reason,
        costs=costs,
        here=at(costs.round_trip_s),
        elsewhere=tuple(map(at, ELSEWHERE_S)),
        one_process=at(0.0),
    )


def expect(
    costs: Costs,
    in_blocks: Sequence[float],
    in_runs: Sequence[float],
    block_size: int,
    *,
    realigned: float = 0.0,
) -> Expected:
    """Estimate the time of a token in each mode.

    Parameters
    ----------
    in_blocks, in_runs : survival after a commit, and after a correction.
    block_size : tokens of a block in ``pipelined``.
    realigned : how often the first token after a correction is the one that was drafted before.
    """
    gamma = best_gamma(costs, in_blocks, MAX_CHOSEN_GAMMA)
    times_s = {
        Mode.TARGET_ONLY: costs.verify_s(0),
        Mode.SYNC: sync_s(costs, in_blocks, gamma),
        Mode.PIPELINED: pipelined_s(costs, in_runs, block_size),
        Mode.FULL: full_s(costs, in_runs, realigned),
    }
    return Expected(costs.round_trip_s, gamma, times_s)


def _decide(measured: Mapping[Mode, Measured]) -> tuple[Measured, str]:
    """Choose ``full`` unless another mode is surely faster or it gains nothing."""
    full = measured[Mode.FULL]
    surely_faster = [one for one in measured.values() if one.over_full.high < 1]
    best, reason = full, "no other mode was faster by more than the spread"
    if surely_faster:
        best, reason = min(surely_faster, key=_time_s), "faster than full by more than the spread"
    if best.over_target_only.value >= 1:
        best, reason = min(measured.values(), key=_time_s), "the fastest, where full gained nothing"
    if best.mode is Mode.TARGET_ONLY:
        reason = "no mode with a draft was faster"
        if any(one.over_target_only.low < 1 for one in measured.values()):
            reason += "; one of them may be, so measure for longer"
    elif best.over_target_only.high >= 1:
        reason += "; the gain is not certain, so measure for longer"
    return best, reason


def _time_s(measured: Measured) -> float:
    return measured.time_per_token_s


def _total(rounds: Sequence[Round], mode: Mode) -> SpeculationStatistics:
    total = SpeculationStatistics()
    for each in rounds:
        total.add(each[mode].statistics)
    if not total.num_judged or not total.num_answers or not total.num_draft_steps:
        raise SpecWhisperError(
            "Too little was drafted to estimate anything: name recordings with more speech."
        )
    return total


def _costs(total: SpeculationStatistics) -> Costs:
    num_tokens = 1 + (total.num_verified + total.num_hinted) / total.num_forwards  # of a forward pass
    forward_ns = total.forward_ns / total.num_forwards - num_tokens * total.token_ns
    times = (
        total.draft_ns / total.num_draft_steps,
        max(0.0, forward_ns),
        total.token_ns,
        total.network_ns / total.num_answers,
    )
    return Costs(*(ns / 1e9 for ns in times))


def _survival(total: SpeculationStatistics) -> tuple[float, ...]:
    return tuple(total.alpha**num for num in range(MAX_RUN + 1))
