"""The target's record of a window: committed tokens and pending candidates.

The draft's counterpart is :mod:`specwhisper.speculation.belief`. Everything is decided by position, so blocks
may be late, repeated, reordered or wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import takewhile
from typing import NamedTuple

MAX_SKIPPED = 3  # reused candidates that a correction may skip


class Offer(Enum):
    """How the ledger took a block of candidates."""

    FRESH = "fresh"  # some are for positions that are not committed
    LATE = "late"  # all agree with committed tokens
    VOID = "void"  # dropped: it leaves a gap, disagrees, or was drafted before a correction


class Source(Enum):
    """The source of a pending candidate."""

    REUSED = "reused"  # the target's earlier decoding of the same audio
    ENDING = "ending"  # the same, but only if no more speech follows; a draft may replace it
    DRAFT = "draft"


class Pending(NamedTuple):
    """A candidate that no forward pass has verified yet."""

    token: int
    source: Source


class Ledger:
    """Committed tokens, and the candidates for the positions after them.

    The sources of pending candidates are in order: reused ones, then either an ending or the draft's.

    Parameters
    ----------
    reused, ending : candidates of an earlier decoding by the target, see :class:`Source`.
    max_pending : most candidates that wait for a forward pass.

    Attributes
    ----------
    correction : position of the last committed token that contradicted a candidate; -1 without one.
    """

    def __init__(
        self,
        committed: Sequence[int] = (),
        *,
        reused: Sequence[int] = (),
        ending: Sequence[int] = (),
        max_pending: int = 256,
    ) -> None:
        self.committed = list(committed)
        self.correction = -1
        candidates = [*_from(Source.REUSED, reused), *_from(Source.ENDING, ending)]
        self._pending = candidates[:max_pending]
        self._max_pending = max_pending
        self._is_after_correction = False  # whether no candidate was right since the last correction

    @property
    def num_pending(self) -> int:
        """Candidates that wait for a forward pass."""
        return len(self._pending)

    @property
    def num_reused(self) -> int:
        """Pending candidates that no draft has sent; they are the first ones."""
        return sum(each.source is not Source.DRAFT for each in self._pending)

    @property
    def held(self) -> int:
        """Position up to which tokens are committed or pending, without an ending."""
        return len(self.committed) + sum(each.source is not Source.ENDING for each in self._pending)

    @property
    def reused(self) -> tuple[int, ...]:
        """Pending reused candidates, without an ending."""
        return tuple(
            token for token, _ in takewhile(lambda each: each.source is Source.REUSED, self._pending)
        )

    def candidates(self, max_tokens: int | None = None) -> list[int]:
        """Return the first pending candidates, by default all."""
        return [token for token, _ in self._pending[:max_tokens]]

    def offer(self, base: int, known_committed: int, tokens: Sequence[int]) -> Offer:
        """Take candidates for the positions from ``base`` on.

        Parameters
        ----------
        known_committed : how many committed tokens the draft had applied. A block that was drafted before a
            correction, and does not contain it, continues a text that does not exist.
        """
        end = len(self.committed)
        if base > self.held or known_committed <= self.correction < base:
            return Offer.VOID  # before it is compared: the correction that it lacks was sent already
        for position in range(base, min(end, base + len(tokens))):
            if self.committed[position] != tokens[position - base]:
                self.correction = max(self.correction, position)
                return Offer.VOID
        start = max(base, end)
        index = start - end
        fresh, reused = tokens[start - base :], self.reused[index:]
        if any(ours != theirs for ours, theirs in zip(reused, fresh, strict=False)):
            return Offer.VOID  # reused candidates are right more often than a draft's
        overlap = self._pending[index : index + len(fresh)]
        if [token for token, _ in overlap] == list(fresh):
            self._pending[index : index + len(fresh)] = [
                Pending(token, Source.REUSED if source is Source.ENDING else source)
                for token, source in overlap
            ]
        else:  # the draft changed its mind, or continues
            drafted = _from(Source.DRAFT, fresh[len(reused) :])
            self._pending[index + len(reused) :] = drafted
            del self._pending[self._max_pending :]
        return Offer.FRESH if fresh else Offer.LATE

    def append(self, tokens: Sequence[int]) -> None:
        """Commit tokens; one unlike its candidate deletes the candidates after it."""
        for token in tokens:
            if self._pending and self._pending[0].token == token:
                del self._pending[0]
                self._is_after_correction = False
            elif self._pending:
                self._pending = self._realigned(token)
                self._is_after_correction = True
                self.correction = len(self.committed)
            self.committed.append(token)

    def _realigned(self, token: int) -> list[Pending]:
        """Return the reused candidates that may follow a correction.

        With a little more audio, mostly a single time or word changes, and the rest follows again. After two
        corrections in a row the text is another one.
        """
        if self._is_after_correction:
            return []
        reused = [each for each in self._pending[1:] if each.source is not Source.DRAFT]
        skipped = [each.token for each in reused[:MAX_SKIPPED]]
        return reused[skipped.index(token) + 1 :] if token in skipped else reused


def _from(source: Source, tokens: Sequence[int]) -> list[Pending]:
    return [Pending(token, source) for token in tokens]
