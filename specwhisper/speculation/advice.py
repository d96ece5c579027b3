"""Which mode and draft length a link and a pair of models ask for: what ``specwhisper tune`` says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specwhisper.speculation.controller import MIN_GAIN, Estimates
from specwhisper.speculation.draft_length import MAX_ADAPTIVE_GAMMA
from specwhisper.speculation.theory import best_gamma, full_s, sync_s, target_only_s
from specwhisper.types import Mode


@dataclass(frozen=True, slots=True)
class Expected:
    """A mode with its best draft length, and a token's time by closed form; of ``full`` a lower bound."""

    mode: Mode
    gamma: int | None
    time_per_token_s: float


@dataclass(frozen=True, slots=True)
class Advice:
    """What to run.

    Attributes
    ----------
    expected : every mode that has a closed form, the fastest first.
    mode : what to run over this link; its draft length is best left to the session.
    reason : why.
    """

    expected: tuple[Expected, ...]
    mode: Mode
    reason: str


def advise(estimates: Estimates) -> Advice:
    """Advise on a link and a pair, by what a session measured of them."""
    costs, survival = estimates.costs, estimates.survival
    together = replace(costs, round_trip_s=0.0)
    waiting, alone = (best_gamma(c, survival, MAX_ADAPTIVE_GAMMA) for c in (costs, together))
    expected = (
        Expected(Mode.TARGET_ONLY, None, target_only_s(costs)),
        Expected(Mode.SYNC, waiting, sync_s(costs, survival, waiting)),
        Expected(Mode.FULL, None, full_s(costs, survival)),
        Expected(Mode.ONE_PROCESS, alone, sync_s(together, survival, alone)),
    )
    times = {one.mode: one.time_per_token_s for one in expected}
    gain = 1 - times[Mode.FULL] / times[Mode.TARGET_ONLY]
    if gain < MIN_GAIN:
        mode, reason = (
            Mode.TARGET_ONLY,
            "a draft gains nothing: the link is too slow for it, or it is too often wrong",
        )
    elif times[Mode.ONE_PROCESS] < times[Mode.FULL]:
        mode = Mode.FULL
        reason = f"up to {gain:.0%} of the time saved; both models on the target's machine would save more"
    else:
        mode, reason = Mode.FULL, f"up to {gain:.0%} of the time saved, as much as on one machine or more"
    return Advice(tuple(sorted(expected, key=lambda one: one.time_per_token_s)), mode, reason)
