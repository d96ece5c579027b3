"""How far a draft may run ahead of the target."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from specwhisper.errors import InvalidRequest
from specwhisper.speculation.ledger import Belief
from specwhisper.types import Mode

MAX_GAMMA = 64
MAX_ADAPTIVE_GAMMA = 24


@dataclass(frozen=True, slots=True)
class DraftLength:
    """Blocks of ``gamma`` tokens, at most ``depth`` blocks beyond the committed end.

    A mode that waits for answers has one block in flight whatever the depth. Where it ``is_adaptive``, gamma
    is what a session begins with, and :class:`BestGamma` goes on from there.
    """

    mode: Mode
    gamma: int = 5
    depth: int = 4
    is_adaptive: bool = False

    def __post_init__(self) -> None:
        for name in ("gamma", "depth"):
            if not isinstance(getattr(self, name), Integral):
                raise InvalidRequest(f"{name} is {getattr(self, name)!r}: it must be a whole number.")
        if not 1 <= self.gamma <= MAX_GAMMA:
            raise InvalidRequest(f"gamma is {self.gamma}: a block holds between 1 and {MAX_GAMMA} tokens.")
        if self.depth < 1:
            raise InvalidRequest(f"depth is {self.depth}: at least one block must be in flight.")

    @property
    def longest(self) -> int:
        """Most tokens a block may come to hold."""
        return max(self.gamma, MAX_ADAPTIVE_GAMMA) if self.is_adaptive else self.gamma

    def limit(self, belief: Belief) -> int:
        """Position up to which (exclusive) the draft may extend its belief now."""
        if not self.mode.drafts:
            return belief.num_committed
        if self.mode.waits:
            if belief.blocks_in_flight:
                return len(belief.tokens)
            return min(belief.credit, belief.num_sent + self.gamma)
        return min(belief.credit, belief.num_committed + self.gamma * self.depth)


class BestGamma:
    """The draft length that yields most tokens per time, by how often the draft is right and what it costs.

    A block of g tokens costs one pass of the target and g steps of the draft, and yields
    ``(1 - a^(g+1)) / (1 - a)`` tokens where each is right with probability a (arXiv 2211.17192, theorem 3.8).

    Parameters
    ----------
    memory : share of what was seen that is kept with each block: a session's speech changes.
    """

    def __init__(self, gamma: int, *, max_gamma: int = MAX_ADAPTIVE_GAMMA, memory: float = 0.9) -> None:
        self.gamma = gamma
        self._max_gamma = max_gamma
        self._memory = memory
        self._kept = self._judged = self._draft_ns = self._drafted = self._pass_ns = self._passes = 0.0

    def observe(
        self, *, num_verified: int, num_accepted: int, num_drafted: int, draft_ns: int, pass_ns: int
    ) -> None:
        """Take in a pass: what became of its candidates, and what was spent since the last one."""
        was_wrong = num_accepted < num_verified
        self._kept = self._kept * self._memory + num_accepted
        self._judged = self._judged * self._memory + num_accepted + was_wrong
        self._draft_ns = self._draft_ns * self._memory + draft_ns
        self._drafted = self._drafted * self._memory + num_drafted
        self._pass_ns = self._pass_ns * self._memory + pass_ns
        self._passes = self._passes * self._memory + 1
        if self._judged and self._drafted and self._pass_ns:
            rate = min(self._kept / self._judged, 0.99)
            cost = (self._draft_ns / self._drafted) / (self._pass_ns / self._passes)
            self.gamma = max(
                range(1, self._max_gamma + 1),
                key=lambda g: (1 - rate ** (g + 1)) / (1 - rate) / (1 + g * cost),
            )
