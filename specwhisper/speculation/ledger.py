"""Who knows which tokens of a window: the target's ledger and the draft's belief.

Both sides hold the same committed prefix at different moments. Everything is decided by position, so blocks
may be late, repeated, reordered or wrong without harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from specwhisper.errors import InvalidCandidates

MAX_LEFT_OUT = 3  # tokens of an earlier decoding that a correction may jump over


class Offer(Enum):
    """What became of a block of candidates."""

    FRESH = "fresh"  # some are for positions that are not committed
    LATE = "late"  # all agree with what is committed
    VOID = "void"  # it left a gap, disagreed, or was drafted on what was corrected since


class Ledger:
    """The target's side: committed tokens and the candidates that wait right behind them.

    Parameters
    ----------
    expected : candidates of the target's own, from an earlier decoding of the same audio.
    ending : what follows them if nothing more is spoken; a draft may know better.

    Attributes
    ----------
    correction : position of the last committed token that contradicted a candidate; -1 without one.
    num_reused : pending candidates that are the target's own; they come first.
    """

    def __init__(
        self,
        committed: Sequence[int] = (),
        *,
        expected: Sequence[int] = (),
        ending: Sequence[int] = (),
        max_pending: int = 256,
    ) -> None:
        self.committed = list(committed)
        self.pending = [*expected, *ending][:max_pending]
        self.num_reused = len(self.pending)
        self._num_unsure = max(0, self.num_reused - len(expected))  # at the end of the pending
        self._num_agreed = 1  # of these, since one of them was wrong
        self._max_pending = max_pending
        self.correction = -1

    @property
    def held(self) -> int:
        """Position up to which tokens are committed or pending, without what is unsure."""
        return len(self.committed) + len(self.pending) - self._num_unsure

    @property
    def expected(self) -> tuple[int, ...]:
        """The target's own candidates that are not unsure."""
        return tuple(self.pending[: min(self.num_reused, len(self.pending) - self._num_unsure)])

    def offer(self, base: int, known_committed: int, tokens: Sequence[int]) -> Offer:
        """Take candidates for the positions from ``base`` on.

        Void are blocks that leave a gap, that disagree with the committed tokens, or that were drafted
        before a correction which they do not contain: the tokens behind it continue a text that never was.
        """
        end = len(self.committed)
        if base > self.held or known_committed <= self.correction < base:
            return Offer.VOID  # before it is compared: what it contradicts was corrected already
        for position in range(base, min(end, base + len(tokens))):
            if self.committed[position] != tokens[position - base]:
                self.correction = max(self.correction, position)
                return Offer.VOID
        start = max(base, end)
        place = start - end
        fresh = list(tokens[start - base :])
        behind, own = self.pending[place:], self.expected[place:]
        if any(ours != theirs for ours, theirs in zip(own, fresh, strict=False)):
            return Offer.VOID  # the target knows better what it wrote before
        if fresh != behind[: len(fresh)]:  # the draft changed its mind, or goes on
            self.num_reused = min(self.num_reused, place + len(own))
            self.pending[place:] = fresh
            del self.pending[self._max_pending :]
            self._num_unsure = 0
        else:
            self._num_unsure = min(self._num_unsure, len(behind) - len(fresh))
        return Offer.FRESH if fresh else Offer.LATE

    def append(self, tokens: Sequence[int]) -> None:
        """Commit tokens; candidates that foresaw them move up, others are void but for the target's own."""
        for token in tokens:
            if self.pending and self.pending[0] == token:
                del self.pending[0]
                self.num_reused = max(0, self.num_reused - 1)
                self._num_agreed += 1
            elif self.pending:
                self.pending = self._anchored_anew(token)
                self.num_reused = len(self.pending)
                self._num_agreed = 0
                self.correction = len(self.committed)
            self._num_unsure = min(self._num_unsure, len(self.pending))
            self.committed.append(token)

    def _anchored_anew(self, token: int) -> list[int]:
        """Give what may hold of the target's own candidates behind a correction.

        With a little more audio mostly a single time or word is another one: what followed it follows again.
        If the next one is wrong too, the text is another.
        """
        own = self.pending[1 : self.num_reused]
        if not self._num_agreed:
            return []
        return own[own.index(token) + 1 :] if token in own[:MAX_LEFT_OUT] else own


class Belief:
    """The draft's side: the committed prefix and, behind it, what the draft expects to follow.

    Parameters
    ----------
    expected : what the target expects by itself; it need not be told.

    Attributes
    ----------
    tokens : the belief, committed tokens first.
    num_committed : how many of them the target has committed.
    num_sent : position up to which the target has been told.
    num_blocks : candidate blocks that were sent, those of an earlier belief about the window included.
    run_start : where the run begins in which it has been right so far: behind the last contradiction.
    credit : position up to which (exclusive) candidates may be sent.
    """

    def __init__(
        self, committed: Sequence[int] = (), *, credit: int, num_blocks: int = 0, expected: Sequence[int] = ()
    ) -> None:
        self.tokens = [*committed, *expected]
        self.num_committed, self.num_sent = len(committed), len(self.tokens)
        self.credit = credit
        self.num_blocks = self._blocks_answered = num_blocks
        self.run_start = self.num_committed
        self._ends: dict[int, int] = {}  # of this run's blocks, from the newest that is answered on

    @property
    def blocks_in_flight(self) -> int:
        """Candidate blocks that were sent and not answered yet, nor lost for all that is known."""
        return max(0, self.num_blocks - self._blocks_answered)

    def take_block(self, max_tokens: int) -> tuple[int, tuple[int, ...]]:
        """Give base and tokens of the next block, which counts as sent from now on; it may be empty."""
        base = self.num_sent
        block = tuple(self.tokens[base : base + max_tokens])
        self.num_sent += len(block)
        self.num_blocks += 1
        self._ends[self.num_blocks] = self.num_sent
        return base, block

    def apply(
        self,
        base: int,
        tokens: Sequence[int],
        *,
        held: int,
        blocks_answered: int,
        credit: int,
        lost_all: bool = False,
    ) -> int:
        """Take in a commit and give the position up to which the former belief still stands.

        Everything behind a contradiction is forgotten. Where the target holds less than the answered block
        told it, or than all blocks did, it dropped something or has never got it: the rest counts as unsent.

        Parameters
        ----------
        blocks_answered : number of the newest block that is answered; whatever was sent before it, is too.
        lost_all : whether the target has waited in vain: no block is in flight then.
        """
        if base > self.num_committed:
            raise InvalidCandidates(f"A commit at position {base} leaves a gap behind {self.num_committed}.")
        agreed = len(self.tokens)
        for position, token in enumerate(tokens, start=base):
            if position < len(self.tokens) and self.tokens[position] != token:
                if position < self.num_committed:
                    raise InvalidCandidates(f"A commit contradicts an earlier one at position {position}.")
                del self.tokens[position:]
                agreed = position
                self.run_start = position + 1
                self._ends.clear()
            if position == len(self.tokens):
                self.tokens.append(token)
        self.num_committed = max(self.num_committed, base + len(tokens))
        self._blocks_answered = max(self._blocks_answered, self.num_blocks if lost_all else blocks_answered)
        self.credit = credit
        self._ends = {number: end for number, end in self._ends.items() if number >= self._blocks_answered}
        has_dropped = held < self._ends.get(self._blocks_answered, 0)
        told = held if has_dropped or not self.blocks_in_flight else len(self.tokens)
        self.num_sent = max(self.num_committed, min(self.num_sent, told, len(self.tokens)))
        return agreed
