"""Closed forms of the time of a token in each mode.

``survival[i]`` is how often the first i candidates are all accepted (``survival[0]`` is 1): those of a block
in lock-step, else those after a correction. If a draft is right with probability a at every position, both
are ``a**i``, but nothing here assumes that. Times are in seconds, of one session that has target and draft to
itself. ``docs/latency.md`` derives the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from specwhisper.types import DEFAULT_MAX_WIDTH

MAX_CHAIN = 448  # tokens: a window has no more


@dataclass(frozen=True, slots=True)
class Costs:
    """The times of a session's parts.

    Attributes
    ----------
    draft_s : a draft step.
    forward_s, forward_token_s : a forward pass of the target: its constant part, and each token in it.
    round_trip_s : from sending a candidate to receiving its commit, without the forward pass.
    """

    draft_s: float
    forward_s: float
    forward_token_s: float = 0.0
    round_trip_s: float = 0.0

    def verify_s(self, num_candidates: float) -> float:
        """Return the time of a forward pass over the last token and ``num_candidates``."""
        return self.forward_s + (1 + num_candidates) * self.forward_token_s


def tokens_per_block(survival: Sequence[float], gamma: int) -> float:
    """Return the tokens of a verified block: accepted candidates and one more."""
    return sum(survival[: gamma + 1])


def target_only_s(costs: Costs) -> float:
    return costs.verify_s(0)


def sync_s(costs: Costs, survival: Sequence[float], gamma: int) -> float:
    """Return the time of a token in lock-step: over a link or in one process."""
    block_s = gamma * costs.draft_s + costs.round_trip_s + costs.verify_s(gamma)
    return block_s / tokens_per_block(survival, gamma)


def best_gamma(costs: Costs, survival: Sequence[float], max_gamma: int) -> int:
    return min(range(1, max_gamma + 1), key=lambda gamma: sync_s(costs, survival, gamma))


def pipelined_s(costs: Costs, survival: Sequence[float], gamma: int) -> float:
    """Return the time of a token if the draft never waits; the target only verifies.

    A run lasts from one correction to the next. Its last candidate, the wrong one, is drafted with its block
    and crosses the link. If forward passes follow each other, it waits for half of one until its own begins,
    which verifies all candidates that arrived meanwhile.
    """
    saturates = gamma * costs.draft_s < costs.verify_s(gamma)
    together = min(costs.verify_s(0) / max(costs.draft_s, 1e-9), DEFAULT_MAX_WIDTH)
    total_s, later = 0.0, [*survival[1:], 0.0]
    for num_tokens, (reached, survived) in enumerate(zip(survival, later, strict=True), start=1):
        drafted_s = -(-num_tokens // gamma) * gamma * costs.draft_s
        waits = saturates and num_tokens > gamma
        verify_s = (
            costs.verify_s(0) / 2 + costs.verify_s(max(gamma, together)) if waits else costs.verify_s(gamma)
        )
        total_s += (reached - survived) * (drafted_s + costs.round_trip_s + verify_s)
    return total_s / sum(survival)


def full_s(costs: Costs, survival: Sequence[float], realigned: float = 0.0) -> float:
    """Return the time of a token if the target also decodes by itself; see :func:`chain_s`."""
    return chain_s(costs, survival, realigned) / chain_tokens(survival, realigned)


def chain_s(
    costs: Costs, survival: Sequence[float], realigned: float = 0.0, head_start_s: float = 0.0
) -> float:
    """Return the mean time of a chain if the target also decodes by itself.

    A chain is what a draft sends without waiting. It ends with a correction; but if what the draft had sent
    before continues the text, which a share ``realigned`` does, only the forward pass ends there. After a
    chain the target continues at once, one forward pass after another, each with the candidates that have
    arrived and a token of its own; the next chain arrives a round trip later.

    Parameters
    ----------
    head_start_s : time by which the draft begins before the target, which encodes the window meanwhile.
    """
    time_s, num_tokens, total_s = 0.0, 0.0, 0.0
    in_pass = [chance**realigned for chance in survival]  # chances of candidates while the chain continues
    while reached := useful(survival, realigned, num_tokens):
        drafting_s = max(0.0, time_s + head_start_s - costs.round_trip_s)
        num_arrived = drafting_s / max(costs.draft_s, 1e-9)
        num_candidates = min(max(0, floor(num_arrived - num_tokens + 1e-9)), DEFAULT_MAX_WIDTH)
        time_s += costs.verify_s(num_candidates)
        num_tokens += sum(in_pass[: num_candidates + 1])
        total_s += (reached - useful(survival, realigned, num_tokens)) * time_s
    return total_s


def window_s(
    costs: Costs, survival: Sequence[float], realigned: float, num_tokens: int, head_start_s: float
) -> float:
    """Return the time of a window in ``full``: its first chain has a head start, later ones have none."""
    first_tokens = chain_tokens(survival, realigned)
    first_s = chain_s(costs, survival, realigned, head_start_s)
    if first_tokens >= num_tokens:
        return first_s * num_tokens / first_tokens
    return first_s + (num_tokens - first_tokens) * full_s(costs, survival, realigned)


def useful(survival: Sequence[float], realigned: float, index: float) -> float:
    """Return how often a candidate after ``index`` others can be accepted.

    Without realignment it can be only if all before it are right.
    """
    last = len(survival) - 1
    if index >= MAX_CHAIN or (index > last and not realigned):
        return 0.0
    if index > last:  # beyond what was measured, tokens are right as often as before
        return float(survival[last] ** (index / last * (1 - realigned))) if last else 0.0
    low = floor(index)
    chance = survival[low] + (index - low) * (survival[min(low + 1, last)] - survival[low])
    return float(chance ** (1 - realigned))


def chain_tokens(survival: Sequence[float], realigned: float) -> float:
    num_tokens = float(sum(chance ** (1 - realigned) for chance in survival))
    last = len(survival) - 1
    if realigned and last:
        rate, num_later = float(survival[last] ** ((1 - realigned) / last)), MAX_CHAIN - 1 - last
        chance = float(survival[last] ** (1 - realigned))
        num_tokens += chance * (num_later if rate == 1 else rate * (1 - rate**num_later) / (1 - rate))
    return num_tokens
