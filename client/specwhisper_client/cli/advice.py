"""Compare modes on the same recordings by ratios of time per token, and advise on one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median_low, stdev

from specwhisper.errors import SpecWhisperError
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import NS_PER_S, Mode

COMPARED = (Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED, Mode.FULL)
MIN_ROUNDS = 2  # with a single round the spread is unknown
# Student's t for 95 %, rounded up, for 1, 2, ... degrees of freedom; the last value is for all higher ones.
STUDENT_T = (12.71, 4.31, 3.19, 2.78, 2.58, 2.45, 2.37, 2.31, 2.27, 2.23)


Round = Mapping[Mode, Transcription]  # one recording in every mode, one right after the other


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio and its 95 % interval.

    Attributes
    ----------
    low, high : equal to the value where a single round leaves the spread unknown.
    num_rounds : number of paired measurements.
    """

    value: float
    low: float
    high: float
    num_rounds: int

    def __str__(self) -> str:
        spread = f"{self.low:.2f}, {self.high:.2f}" if self.num_rounds > 1 else "n = 1"
        return f"{self.value:.2f} [{spread}]"

    @classmethod
    def paired(cls, times: Sequence[float], references: Sequence[float]) -> Ratio:
        """Return the geometric mean of the ratios of times, paired by round."""
        logs = [log(time / reference) for time, reference in zip(times, references, strict=True)]
        mean = fmean(logs)
        if len(logs) == 1:
            return cls(exp(mean), exp(mean), exp(mean), 1)
        off = STUDENT_T[min(len(logs) - 1, len(STUDENT_T)) - 1] * stdev(logs) / sqrt(len(logs))
        return cls(exp(mean), exp(mean - off), exp(mean + off), len(logs))


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a mode over all rounds.

    Attributes
    ----------
    time_per_token_s : seconds, geometric mean over the rounds.
    over_target_only, over_full : paired ratios of that time.
    acceptance_rate : share of the verified candidates that were accepted; 0 without any.
    gamma : median number of tokens in the last blocks; ``None`` without a draft.
    """

    mode: Mode
    time_per_token_s: float
    over_target_only: Ratio
    over_full: Ratio
    acceptance_rate: float
    gamma: int | None


def time_per_token_s(transcription: Transcription) -> float:
    """Return seconds per committed token of all that the client waited; without a token, all seconds."""
    return transcription.elapsed_s / max(1, _counts(transcription).num_committed)


def _counts(transcription: Transcription) -> SpeculationStatistics:
    return transcription.stats or SpeculationStatistics()


def compare(rounds: Sequence[Round]) -> dict[Mode, Measured]:
    """Compare the modes over at least :data:`MIN_ROUNDS` rounds."""
    times = {mode: [time_per_token_s(each[mode]) for each in rounds] for mode in COMPARED}
    compared = {}
    for mode in COMPARED:
        counts = [_counts(each[mode]) for each in rounds]
        gammas = [each.gamma for each in counts if each.gamma]
        num_verified = sum(each.num_verified for each in counts)
        compared[mode] = Measured(
            mode=mode,
            time_per_token_s=exp(fmean(map(log, times[mode]))),
            over_target_only=Ratio.paired(times[mode], times[Mode.TARGET_ONLY]),
            over_full=Ratio.paired(times[mode], times[Mode.FULL]),
            acceptance_rate=sum(each.num_accepted for each in counts) / max(1, num_verified),
            gamma=median_low(gammas) if gammas else None,
        )
    return compared


@dataclass(frozen=True, slots=True)
class Parts:
    """Mean times of the parts of a session in ``sync``, in which draft and target take turns.

    Attributes
    ----------
    draft_s : seconds of a draft step.
    forward_s, token_s : a forward pass of the target: its constant part, and each token in it.
    round_trip_s : from sending a block to its answer, without the forward pass.
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
    parts : what a token's time consists of.
    """

    measured: tuple[Measured, ...]
    best: Measured
    reason: str
    parts: Parts


def advise(rounds: Sequence[Round]) -> Advice:
    """Advise on a link and a pair of models.

    Raises :class:`SpecWhisperError` if nothing was drafted.
    """
    measured = compare(rounds)
    best, reason = _decide(measured)
    return Advice(tuple(sorted(measured.values(), key=_time_s)), best, reason, _parts(rounds))


def _decide(measured: Mapping[Mode, Measured]) -> tuple[Measured, str]:
    """Choose ``full``, or a mode that is clearly faster; target-only unless the gain exceeds the spread."""
    full = measured[Mode.FULL]
    gaining = [one for one in measured.values() if one.over_target_only.high < 1]
    surely_faster = [one for one in gaining if one.over_full.high < 1]
    if not gaining:
        reason = "no mode with a draft gains more than the spread"
        if any(one.over_target_only.low < 1 for one in measured.values()):
            reason += "; one of them may gain, so measure for longer"
        return measured[Mode.TARGET_ONLY], reason
    if full not in gaining:
        return min(gaining, key=_time_s), "the fastest, where full gained no more than the spread"
    if surely_faster:
        return min(surely_faster, key=_time_s), "faster than full by more than the spread"
    return full, "no other mode was faster by more than the spread"


def _time_s(measured: Measured) -> float:
    return measured.time_per_token_s


def _parts(rounds: Sequence[Round]) -> Parts:
    total = SpeculationStatistics()
    for each in rounds:
        total.add(_counts(each[Mode.SYNC]))
    if not total.num_answers or not total.num_draft_steps:
        raise SpecWhisperError("Nothing was drafted: name recordings with more speech.")
    forward_ns = total.forward_ns / total.num_forwards
    tokens_per_pass = 1 + total.num_verified / total.num_forwards
    return Parts(
        draft_s=total.draft_ns / total.num_draft_steps / NS_PER_S,
        forward_s=max(0.0, forward_ns - tokens_per_pass * total.token_ns) / NS_PER_S,
        token_s=total.token_ns / NS_PER_S,
        round_trip_s=total.network_ns / total.num_answers / NS_PER_S,
    )
