"""Advice of ``specwhisper tune``: the mode that was fastest over this link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specwhisper.errors import SpecWhisperError
from specwhisper.speculation.comparison import Measured, Round, compare
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import NS_PER_S, Mode


@dataclass(frozen=True, slots=True)
class Parts:
    """Mean times of the parts of a session in ``sync``, where they take turns.

    Attributes
    ----------
    draft_s : seconds of a draft step.
    forward_s, token_s : a forward pass of the target: its constant part, and each token in it.
    round_trip_s : of a block and its answer, messages included, without the forward pass.
    """

    draft_s: float
    forward_s: float
    token_s: float
    round_trip_s: float


@dataclass(frozen=True, slots=True)
class Advice:
    """The mode to run over this link.

    Attributes
    ----------
    measured : every mode, the fastest first.
    best, reason : the mode to run, and why.
    parts : of link and models.
    """

    measured: tuple[Measured, ...]
    best: Measured
    reason: str
    parts: Parts


def advise(rounds: Sequence[Round]) -> Advice:
    """Advise on a link and a pair of models.

    Raises
    ------
    InvalidRequest
        for fewer than two rounds.
    SpecWhisperError
        if nothing was drafted.
    """
    measured = compare(rounds)
    best, reason = _decide(measured)
    return Advice(tuple(sorted(measured.values(), key=_time_s)), best, reason, _parts(rounds))


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


def _parts(rounds: Sequence[Round]) -> Parts:
    total = SpeculationStatistics()
    for each in rounds:
        total.add(each[Mode.SYNC].statistics)
    if not total.num_answers or not total.num_draft_steps:
        raise SpecWhisperError("Nothing was drafted: name recordings with more speech.")
    num_tokens = 1 + total.num_verified / total.num_forwards  # of a forward pass
    return Parts(
        draft_s=total.draft_ns / total.num_draft_steps / NS_PER_S,
        forward_s=max(0.0, total.forward_ns / total.num_forwards - num_tokens * total.token_ns) / NS_PER_S,
        token_s=total.token_ns / NS_PER_S,
        round_trip_s=total.network_ns / total.num_answers / NS_PER_S,
    )
