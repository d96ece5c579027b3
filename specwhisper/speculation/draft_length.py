"""How far a draft may run ahead of the target."""

from __future__ import annotations

from dataclasses import dataclass

from specwhisper.errors import InvalidRequest
from specwhisper.speculation.ledger import Belief
from specwhisper.types import Mode

MAX_GAMMA = 64


@dataclass(frozen=True, slots=True)
class DraftLength:
    """Blocks of ``gamma`` tokens, at most ``depth`` blocks beyond the committed end.

    A mode that waits for answers has one block in flight whatever the depth.
    """

    mode: Mode
    gamma: int = 5
    depth: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.gamma <= MAX_GAMMA:
            raise InvalidRequest(f"gamma is {self.gamma}: a block holds between 1 and {MAX_GAMMA} tokens.")
        if self.depth < 1:
            raise InvalidRequest(f"depth is {self.depth}: at least one block must be in flight.")

    def limit(self, belief: Belief) -> int:
        """Position up to which (exclusive) the draft may extend its belief now."""
        if not self.mode.drafts:
            return belief.num_committed
        if self.mode.waits:
            if belief.blocks_in_flight:
                return len(belief.tokens)
            return min(belief.credit, belief.num_sent + self.gamma)
        return min(belief.credit, belief.num_committed + self.gamma * self.depth)
