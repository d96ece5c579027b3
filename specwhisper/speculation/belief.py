"""The draft's sequence of a window: committed tokens, and its own after them.

The target's counterpart is :mod:`specwhisper.speculation.ledger`. Everything is decided by position, so
blocks and commits may be late, repeated, reordered or wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from specwhisper.errors import InvalidCandidates


class Belief:
    """Committed tokens, drafted tokens after them, and which of these were sent.

    Parameters
    ----------
    opening : text of the target, which is never sent.

    Attributes
    ----------
    tokens : the belief, committed tokens first.
    num_committed : number of committed tokens.
    num_sent : position up to which the target has the tokens.
    num_blocks : number of the newest block; blocks of an earlier belief about the window count.
    credit : position up to which (exclusive) candidates may be sent.
    """

    def __init__(self, *, credit: int, num_blocks: int = 0, opening: Sequence[int] = ()) -> None:
        self.tokens = list(opening)
        self.num_committed, self.num_sent = 0, len(self.tokens)
        self.credit = credit
        self.num_blocks = self._blocks_answered = num_blocks
        self._block_ends: dict[int, int] = {}  # by number, since the last contradiction and answer

    @property
    def blocks_in_flight(self) -> int:
        """Blocks that were sent and neither answered nor lost."""
        return max(0, self.num_blocks - self._blocks_answered)

    def cut_block(self, max_tokens: int) -> tuple[int, tuple[int, ...]]:
        """Return base and tokens of the next block, perhaps empty; it counts as sent."""
        base = self.num_sent
        block = tuple(self.tokens[base : base + max_tokens])
        self.num_sent += len(block)
        self.num_blocks += 1
        self._block_ends[self.num_blocks] = self.num_sent
        return base, block

    def apply_commit(
        self,
        base: int,
        tokens: Sequence[int],
        *,
        held: int,
        blocks_answered: int,
        credit: int,
        lost_all: bool = False,
    ) -> int:
        """Apply a commit; return the position up to which the old belief agrees with it.

        A contradiction removes all tokens after it. If the target holds less than the answered block reached,
        or than all blocks did, it dropped or never received some tokens: they count as unsent again.

        Parameters
        ----------
        held : position up to which the target holds tokens.
        blocks_answered : number of the newest answered block; it also answers all earlier ones.
        lost_all : whether the target waited in vain: then no block is in flight.

        Raises
        ------
        InvalidCandidates
            if the commit leaves a gap or contradicts an earlier one.
        """
        if base > self.num_committed:
            raise InvalidCandidates(f"A commit at position {base} leaves a gap after {self.num_committed}.")
        agreed = len(self.tokens)
        for position, token in enumerate(tokens, start=base):
            if position < len(self.tokens) and self.tokens[position] != token:
                if position < self.num_committed:
                    raise InvalidCandidates(f"A commit contradicts an earlier one at position {position}.")
                del self.tokens[position:]
                agreed = position
                self._block_ends.clear()
            if position == len(self.tokens):
                self.tokens.append(token)
        self.num_committed = max(self.num_committed, base + len(tokens))
        self.credit = credit
        self._blocks_answered = max(self._blocks_answered, self.num_blocks if lost_all else blocks_answered)
        self._block_ends = {
            number: end for number, end in self._block_ends.items() if number >= self._blocks_answered
        }
        has_dropped = held < self._block_ends.get(self._blocks_answered, 0)
        arrived = held if has_dropped or not self.blocks_in_flight else len(self.tokens)
        self.num_sent = max(self.num_committed, min(self.num_sent, arrived, len(self.tokens)))
        return agreed
