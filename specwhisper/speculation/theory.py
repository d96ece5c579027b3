"""What a token costs in each mode, by what the link and the models cost: closed forms.

``survival[i]`` is how often the first i candidates are all accepted (``survival[0]`` is 1): of a block where
blocks wait for each other, else behind a correction. Where a draft is right with probability a at every
position both are ``a**i``, but nothing here assumes that.
Times are in seconds, of one session that has target and draft to itself. ``docs/latency.md`` derives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from specwhisper.types import DEFAULT_MAX_WIDTH


@dataclass(frozen=True, slots=True)
class Costs:
    """What the parts of a session cost.

    Attributes
    ----------
    draft_s : a step of the draft.
    forward_s, forward_token_s : a pass of the target: its constant part, and each token in it.
    round_trip_s : from a candidate sent to its commit heard, without the pass.
    """

    draft_s: float
    forward_s: float
    forward_token_s: float = 0.0
    round_trip_s: float = 0.0

    def verify_s(self, num_candidates: float) -> float:
        """Give the time of a pass over the last token and so many candidates."""
        return self.forward_s + (1 + num_candidates) * self.forward_token_s


def geometric(acceptance: float, length: int = 256) -> list[float]:
    """Give the survival of candidates that are each right with the same probability."""
    return [acceptance**i for i in range(length)]


def tokens_per_block(survival: Sequence[float], gamma: int) -> float:
    """Give the tokens that a verified block yields: its accepted candidates and the target's own."""
    return sum(survival[: gamma + 1])


def target_only_s(costs: Costs) -> float:
    """Give the time of a token of the target alone, at any round trip: its commits stream."""
    return costs.verify_s(0)


def sync_s(costs: Costs, survival: Sequence[float], gamma: int) -> float:
    """Give the time of a token where every block is waited for.

    Without a round trip it is that of one process, in which draft and target take turns.
    """
    block_s = gamma * costs.draft_s + costs.round_trip_s + costs.verify_s(gamma)
    return block_s / tokens_per_block(survival, gamma)


def best_gamma(costs: Costs, survival: Sequence[float], max_gamma: int) -> int:
    """Give the draft length with which :func:`sync_s` is shortest."""
    return min(range(1, max_gamma + 1), key=lambda gamma: sync_s(costs, survival, gamma))


def pipelined_s(costs: Costs, survival: Sequence[float], gamma: int) -> float:
    """Give the time of a token where the draft never waits and the target only verifies.

    A run lasts from a correction to the next. Its last candidate, the wrong one, is drafted with its block,
    crosses the link and, where passes follow each other, waits for half a pass until its own begins; that
    one takes what has come meanwhile together.
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


def full_s(costs: Costs, survival: Sequence[float]) -> float:
    """Give the time of a token where the target also decodes by itself.

    A run begins with a correction. The draft hears of it and sends one candidate after the other; the target
    goes on at once, pass after pass, each with the candidates that have come by then and a token of its own.
    """
    time_s, num_tokens, total_s = 0.0, 0, 0.0
    reached = [*survival, 0.0]
    while num_tokens < len(survival):
        num_arrived = max(0.0, time_s - costs.round_trip_s) / max(costs.draft_s, 1e-9)
        num_candidates = min(max(0, floor(num_arrived + 1e-9) - num_tokens), DEFAULT_MAX_WIDTH)
        time_s += costs.verify_s(num_candidates)
        later = min(num_tokens + num_candidates + 1, len(survival))
        total_s += (reached[num_tokens] - reached[later]) * time_s  # runs that end with this pass
        num_tokens = later
    return total_s / sum(survival)
