"""The draft's sequence of a window: committed tokens, and its own after them.

The target's counterpart is :mod:`specwhisper.speculation.ledger`. Everything is decided by position, so
blocks and commits may be late, repeated, reordered or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp
from typing import NamedTuple

from specwhisper.errors import InvalidCandidates
from specwhisper.speculation.hints import Hint
from specwhisper.types import Candidates, Commit, Window


class Judgement(NamedTuple):
    """A commit's verdict on the belief before it.

    Attributes
    ----------
    agreed : position up to which that belief agrees with the commit.
    sent_ns : when the newest of the blocks was sent that it is the first to answer; ``None`` without one.
    num_judged : drafted tokens after a right text that the commit confirmed or corrected.
    num_corrections : those that it corrected.
    is_realigned : whether it shows that the token after the last contradiction was drafted before it.
    """

    agreed: int
    sent_ns: int | None
    num_judged: int
    num_corrections: int
    is_realigned: bool


class SentBlock(NamedTuple):
    end: int
    sent_ns: int


class Belief:
    """Committed tokens, drafted tokens after them, and which of these were sent.

    Parameters
    ----------
    num_blocks : blocks about the window that were sent before; none of them counts any more.
    opening : text of the target, which is never sent.
    word_of : returns the word of a token, by which stale tokens are compared with committed ones.

    Attributes
    ----------
    tokens : the belief, committed tokens first.
    num_sent : position up to which the target has the tokens.
    credit : position up to which (exclusive) candidates may be sent.
    is_predicted : whether the target has not opened the window yet.
    has_sent_empty : whether the newest block was empty and is not answered.
    stale : what was drafted before the last contradictions; it may be drafted again.
    """

    def __init__(
        self,
        window: Window,
        *,
        credit: int,
        num_blocks: int = 0,
        opening: Sequence[int] = (),
        is_predicted: bool = False,
        word_of: Callable[[int], str] = str,
    ) -> None:
        self.window, self.is_predicted = window, is_predicted
        self.tokens = list(opening)
        self.num_committed, self.num_sent = 0, len(self.tokens)
        self.credit = credit
        self.num_blocks = self._blocks_answered = num_blocks
        self.has_sent_empty = False
        self.stale: Hint | None = None
        self._word_of = word_of
        self._log_probs: dict[int, float] = {}  # drafted tokens' log-probabilities, by position
        self._expected: tuple[int, int] | None = None  # position after the last contradiction, token drafted
        self._sent: dict[int, SentBlock] = {}  # by number, from the newest answered one on
        self._num_void = num_blocks  # blocks before the last contradiction: their ends do not count

    @property
    def blocks_in_flight(self) -> int:
        """Blocks that were sent and neither answered nor lost."""
        return self.num_blocks - self._blocks_answered

    @property
    def num_unsent(self) -> int:
        return len(self.tokens) - self.num_sent

    @property
    def confidence(self) -> float:
        """Probability, by the draft, that all tokens after the committed ones are right."""
        drafted = range(self.num_committed, len(self.tokens))
        return exp(sum(self._log_probs.get(position, 0.0) for position in drafted))

    def predicts(self, window: Window) -> bool:
        """Return whether a window is the one that was predicted."""
        mine = replace(
            self.window,
            max_new_tokens=window.max_new_tokens,
            redetects=window.redetects,
            prefix=window.prefix,
        )
        return self.is_predicted and mine == window

    def extend(self, token: int, log_prob: float) -> None:
        """Append a drafted token."""
        self._log_probs[len(self.tokens)] = log_prob
        self.tokens.append(token)
        if self.stale is not None:
            self.stale.follow(token)

    def next_stale(self, max_tokens: int) -> Sequence[int]:
        """Return stale tokens that one draft step may draft again, beside a new one."""
        stale = self.stale
        return () if stale is None else stale.continuation(max_tokens=min(max_tokens, stale.reach()))

    def cut_block(self, max_tokens: int, now_ns: int = 0) -> Candidates:
        """Return the next block, perhaps empty; it counts as sent."""
        base = self.num_sent
        tokens = tuple(self.tokens[base : base + max_tokens])
        self.num_sent += len(tokens)
        self.num_blocks += 1
        self._sent[self.num_blocks] = SentBlock(self.num_sent, now_ns)
        self.has_sent_empty = not tokens
        return Candidates(
            self.window.id,
            base,
            self.num_committed,
            tokens,
            block_number=self.num_blocks,
            start_frame=self.window.start_frame if self.is_predicted else None,
        )

    def apply_commit(self, commit: Commit, *, lost_all: bool = False) -> Judgement:
        """Apply a commit.

        A contradiction removes all tokens after it. If the target holds less than the answered block reached,
        or than all blocks did, it dropped or never received some tokens: they count as unsent again.

        ``lost_all``: whether the target waited in vain: then no block is in flight.

        Raises
        ------
        InvalidCandidates
            if the commit leaves a gap or contradicts an earlier one.
        """
        base, tokens = commit.base, commit.tokens
        if base > self.num_committed:
            raise InvalidCandidates(f"A commit at position {base} leaves a gap after {self.num_committed}.")
        old, num_known = list(self.tokens), self.num_committed
        agreed = len(old)
        for position, token in enumerate(tokens, start=base):
            if position < len(self.tokens) and self.tokens[position] != token:
                if position < self.num_committed:
                    raise InvalidCandidates(f"A commit contradicts an earlier one at position {position}.")
                del self.tokens[position:]
                agreed = position
                self._num_void = self.num_blocks
            if position == len(self.tokens):
                self.tokens.append(token)
        self.num_committed = max(self.num_committed, base + len(tokens))
        self.credit, self.has_sent_empty = commit.credit, False
        sent_ns = self._take_answer(commit, lost_all=lost_all)
        is_realigned = self._judge_realignment()  # before another contradiction
        self._keep_stale(old, agreed)
        end = min(agreed + 1, len(old), self.num_committed)
        judged = [position for position in range(num_known, end) if position in self._log_probs]
        num_corrections = sum(position >= agreed for position in judged)
        return Judgement(agreed, sent_ns, len(judged), num_corrections, is_realigned)

    def _take_answer(self, commit: Commit, *, lost_all: bool) -> int | None:
        """Note which blocks are answered, and what the target lacks; return :attr:`Judgement.sent_ns`."""
        answering = self._sent.get(commit.answered_block)
        is_answered = commit.answered_block <= self._blocks_answered
        answered = self.num_blocks if lost_all else min(commit.answered_block, self.num_blocks)
        self._blocks_answered = answered = max(self._blocks_answered, answered)
        self._sent = {number: block for number, block in self._sent.items() if number >= answered}
        has_dropped = answered > self._num_void and commit.held < self._sent[answered].end
        arrived = commit.held if has_dropped or not self.blocks_in_flight else len(self.tokens)
        self.num_sent = max(self.num_committed, min(self.num_sent, arrived, len(self.tokens)))
        return None if answering is None or is_answered else answering.sent_ns

    def _keep_stale(self, old: Sequence[int], agreed: int) -> None:
        """Keep the tokens after a contradiction as a hint."""
        later = () if self.stale is None else self.stale.continuation()
        if agreed < len(old):
            self.stale = Hint([*old[agreed:], *later], self._word_of)
            self.stale.follow(self.tokens[agreed])
            next_token = self.stale.continuation(max_tokens=1)
            if agreed in self._log_probs:  # drafted, not from the target's earlier text
                self._expected = (agreed + 1, next_token[0] if next_token else -1)
            agreed += 1
        if self.stale is not None:
            for token in self.tokens[agreed:]:
                self.stale.follow(token)

    def _judge_realignment(self) -> bool:
        if self._expected is None or self.num_committed <= self._expected[0]:
            return False
        position, token = self._expected
        self._expected = None
        return self.tokens[position] == token
