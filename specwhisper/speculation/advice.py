"""What ``specwhisper tune`` advises: a mode by what was measured, and estimates of what was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean, median

from specwhisper.errors import SpecWhisperError
from specwhisper.speculation.comparison import Measured, Round, compare
from specwhisper.speculation.controller import Estimates
from specwhisper.speculation.draft_length import MAX_ADAPTIVE_GAMMA
from specwhisper.speculation.theory import Costs, best_gamma, full_s, pipelined_s, sync_s
from specwhisper.types import Mode

ELSEWHERE_S = (0.001, 0.003, 0.01, 0.03, 0.1)  # round trips for which to estimate


@dataclass(frozen=True, slots=True)
class Expected:
    """Estimates for a round trip, by closed form.

    Attributes
    ----------
    gamma : the fixed draft length that is best in ``sync``.
    times_s : by mode, seconds of decoding per token; in ``sync`` with that gamma.
    """

    round_trip_s: float
    gamma: int
    times_s: Mapping[Mode, float]


@dataclass(frozen=True, slots=True)
class Advice:
    """What to run over this link; its draft length is best chosen as it goes, which is what was measured.

    Attributes
    ----------
    measured : every mode, the fastest first.
    best, reason : what to run, and why.
    costs : of link and models, medians over the sessions of ``sync``.
    here, elsewhere : estimates for the round trip of this link and for others.
    one_process : both models on the target's machine, if a draft step takes there what it takes here: a gamma
        and the time of ``sync`` without a round trip.
    """

    measured: tuple[Measured, ...]
    best: Measured
    reason: str
    costs: Costs
    here: Expected
    elsewhere: tuple[Expected, ...]
    one_process: Expected


def advise(rounds: Sequence[Round]) -> Advice:
    """Advise on a link and a pair.

    The parts' times are those of ``sync``: there a block is alone on its way, so that nothing else is in its
    round trip, and passes hold from one token to many. How far a draft is right behind a commit is of
    ``sync`` as well; how long its runs are, for ``pipelined`` and ``full``, is of ``pipelined``, which never
    pauses and whose target does not get ahead of it.

    Raises
    ------
    InvalidRequest : there are fewer than two rounds.
    SpecWhisperError : too little was drafted to estimate anything.
    """
    measured = compare(rounds)
    blocks, runs = (_estimates(rounds, mode) for mode in (Mode.SYNC, Mode.PIPELINED))
    costs, portion = _costs(blocks), measured[Mode.PIPELINED].gamma or 1

    def at(round_trip_s: float) -> Expected:
        return expect(replace(costs, round_trip_s=round_trip_s), _survival(blocks), _survival(runs), portion)

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


def expect(costs: Costs, in_blocks: Sequence[float], in_runs: Sequence[float], portion: int) -> Expected:
    """Estimate what a token takes.

    Parameters
    ----------
    in_blocks, in_runs : survival behind a commit, and behind a correction.
    portion : tokens of a block in ``pipelined``.
    """
    gamma = best_gamma(costs, in_blocks, MAX_ADAPTIVE_GAMMA)
    times_s = {
        Mode.TARGET_ONLY: costs.verify_s(0),
        Mode.SYNC: sync_s(costs, in_blocks, gamma),
        Mode.PIPELINED: pipelined_s(costs, in_runs, portion),
        Mode.FULL: full_s(costs, in_runs),
    }
    return Expected(costs.round_trip_s, gamma, times_s)


def _decide(measured: Mapping[Mode, Measured]) -> tuple[Measured, str]:
    """Choose ``full`` unless another is faster by more than the spread; if it gains nothing, the fastest."""
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
            reason += "; that none gains anything is not sure, so measure for longer"
    elif best.over_target_only.high >= 1:
        reason += "; that it gains anything is not sure, so measure for longer"
    return best, reason


def _time_s(measured: Measured) -> float:
    return measured.time_per_token_s


def _estimates(rounds: Sequence[Round], mode: Mode) -> list[Estimates]:
    known = [each[mode].statistics.estimates for each in rounds]
    estimates = [each for each in known if each is not None]
    if not estimates:
        raise SpecWhisperError(
            "Too little was drafted to measure anything by: name recordings that hold more speech."
        )
    return estimates


def _costs(estimates: Sequence[Estimates]) -> Costs:
    names = [part.name for part in fields(Costs)]
    return Costs(**{name: median(getattr(each.costs, name) for each in estimates) for name in names})


def _survival(estimates: Sequence[Estimates]) -> tuple[float, ...]:
    """Give the mean; beyond what the shortest tells, nothing is assumed to be right."""
    return tuple(map(fmean, zip(*(each.survival for each in estimates), strict=False)))
