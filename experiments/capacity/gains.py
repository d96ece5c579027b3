"""Measured gain of a split over target-only with as many sessions, beside the expected gain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from experiments.capacity.expectation import PassTimes, amdahl, predicted_gain, sizes_around
from experiments.capacity.load import Arm, Outcome
from experiments.common.bench.report import Bar
from experiments.common.bench.stats import ratio_of_medians
from specwhisper.speculation.comparison import Ratio

OF_PREDICTED, OF_ALLOWED = 0.92, 0.9  # the bars
BUSY_GENERATOR = 0.8  # of its core; above it the generator limits the throughput
Rounds = Mapping[tuple[Arm, int], Sequence[Outcome]]  # outcomes of files, by arm and number of sessions


@dataclass(frozen=True, slots=True)
class Gain:
    """Gain of one split arm at one number of sessions.

    Attributes
    ----------
    decoding : tokens per CPU second of the target without its encoder, relative to target-only.
    passes : the same for forward passes only.
    predicted : ``E t(B, 1) / t(B, 1 + gamma)``, where B is the batch size of target-only.
    predicted_as_batched : the same with the split's own batch size: faster sessions wait more for encoder and
        candidates, so fewer share a forward pass.
    batch_sizes : sessions in a forward pass of target-only and of the split.
    encode_share : share of the encoder in target-only's CPU time.
    allowed : overall gain that ``decoding`` and ``encode_share`` allow.
    whole : tokens per second of wall time, relative to target-only.
    """

    arm: Arm
    num_sessions: int
    num_yielded: float
    width: float
    batch_sizes: tuple[float, float]
    decoding: Ratio
    passes: Ratio
    predicted: float
    predicted_as_batched: float
    encode_share: float
    allowed: float
    whole: Ratio
    generator_share: float

    def __str__(self) -> str:
        target_only, split = self.batch_sizes
        return (
            f"{self.arm}, {self.num_sessions} sessions: a forward pass with {self.width:.1f} candidates "
            f"yields {self.num_yielded:.2f} tokens, which predicts {self.predicted:.2f}, or "
            f"{self.predicted_as_batched:.2f} with {split:.1f} sessions in it instead of {target_only:.1f}; "
            f"decoding gained {self.decoding} (forward passes only: {self.passes}). "
            f"The encoder takes {self.encode_share:.0%} of target-only, which allows {self.allowed:.2f}; "
            f"the whole service gained {self.whole}."
        )


def sizes_needed(rounds: Rounds, num_sessions: int) -> list[tuple[int, int]]:
    """Return the sizes, as (sessions, tokens of each), whose times predict the gains."""
    target_only = rounds[Arm.TARGET_ONLY, num_sessions]
    batch_size = _median(target_only, lambda outcome: outcome.usage.batch_size)
    sizes = set(sizes_around(batch_size, 1))
    for arm in split_arms(rounds, num_sessions):
        width = _median(rounds[arm, num_sessions], lambda outcome: outcome.width)
        own_batch_size = _median(rounds[arm, num_sessions], lambda outcome: outcome.usage.batch_size)
        sizes |= {*sizes_around(batch_size, 1 + width), *sizes_around(own_batch_size, 1 + width)}
    return sorted(sizes)


def split_arms(rounds: Rounds, num_sessions: int) -> list[Arm]:
    """Return the split arms measured at a number of sessions."""
    return [arm for arm, number in rounds if arm.is_split and number == num_sessions]


def gain_of(rounds: Rounds, arm: Arm, num_sessions: int, times: PassTimes, *, seed: int) -> Gain:
    """Compare an arm with target-only, round by round."""
    split, target_only = rounds[arm, num_sessions], rounds[Arm.TARGET_ONLY, num_sessions]

    def ratio(value: Callable[[Outcome], float]) -> Ratio:
        return ratio_of_medians([value(one) for one in split], [value(one) for one in target_only], seed=seed)

    batch_size = _median(target_only, lambda outcome: outcome.usage.batch_size)
    own_batch_size = _median(split, lambda outcome: outcome.usage.batch_size)
    num_yielded = _median(split, lambda outcome: outcome.yield_of_blocks)
    width = _median(split, lambda outcome: outcome.width)
    decoding = ratio(lambda outcome: outcome.tokens_per_decode_s)
    encode_share = _median(target_only, lambda outcome: outcome.usage.encode_share)
    return Gain(
        arm,
        num_sessions,
        num_yielded=num_yielded,
        width=width,
        batch_sizes=(batch_size, own_batch_size),
        decoding=decoding,
        passes=ratio(lambda outcome: outcome.tokens_per_forward_s),
        predicted=predicted_gain(times, (batch_size, batch_size), num_yielded, width),
        predicted_as_batched=predicted_gain(times, (batch_size, own_batch_size), num_yielded, width),
        encode_share=encode_share,
        allowed=amdahl(decoding.value, encode_share),
        whole=ratio(lambda outcome: outcome.tokens_per_s),
        generator_share=_median(split, lambda outcome: outcome.generator_share),
    )


def bars(gains: Sequence[Gain]) -> list[Bar]:
    """Return each gain's bars, for the lower end of its interval."""
    found = []
    for gain in gains:
        name = f"{gain.arm}, {gain.num_sessions} sessions"
        by = " (limited by the generator)" if gain.generator_share > BUSY_GENERATOR else ""
        for what, expected, measured, share in (
            ("decoding, predicted gain over the measured", gain.predicted, gain.decoding, OF_PREDICTED),
            ("whole service, allowed gain over the measured", gain.allowed, gain.whole, OF_ALLOWED),
        ):
            shown = f"{expected:.2f} over {measured}{by}"
            found.append(Bar(f"{name}: {what}", expected / measured.low, round(1 / share, 3), shown))
    return found


def _median(outcomes: Sequence[Outcome], value: Callable[[Outcome], float]) -> float:
    return median(value(outcome) for outcome in outcomes)
