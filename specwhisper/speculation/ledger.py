"""The target's record of a window: committed tokens, fresh candidates and hints.

The draft's counterpart is :mod:`specwhisper.speculation.belief`. Everything is decided by position, so blocks
may be late, repeated, reordered or wrong.

=================  ===========================================  ==========================================
Queue              Holds                                        After a committed token that differs
=================  ===========================================  ==========================================
fresh candidates   what target and draft both expect next: the  they become a hint
                   opening text, then the draft's blocks
hints              text that may be said, and where it          realigned (:mod:`speculation.hints`)
                   continues the committed text
=================  ===========================================  ==========================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from specwhisper.speculation.hints import MAX_REACH, GivenHint, Hint, LiveHint, ScriptHint, num_shared

OWN_RATE = 0.95  # how often the target's earlier text is right
DRAFT_MEMORY, SENT_MEMORY = 0.98, 0.9  # share of a judgement's weight that each later one leaves


class CandidateSource(Enum):
    OWN = "own"  # the target's earlier decoding of the same audio
    GIVEN = "given"  # text from outside
    DRAFT = "draft"  # drafted after all that is committed
    SENT = "sent"  # sent by the draft before a correction


class Pending(NamedTuple):
    """A candidate that no forward pass has verified yet."""

    token: int
    source: CandidateSource


@dataclass(slots=True)
class DraftRates:
    """How often a session's draft is right, for as long as the session lasts.

    Attributes
    ----------
    fresh : how often a fresh candidate is right.
    sent : how often the first token after a correction is what was sent before it.
    """

    fresh: float = 0.8
    sent: float = 0.75

    def judge_fresh(self, is_right: bool) -> None:
        self.fresh = DRAFT_MEMORY * self.fresh + (1 - DRAFT_MEMORY) * is_right

    def judge_sent(self, is_right: bool) -> None:
        """Add the first token after a correction."""
        self.sent = SENT_MEMORY * self.sent + (1 - SENT_MEMORY) * is_right


@dataclass(slots=True)
class SharedHints:
    """Hints and rates that all windows of a session share.

    Attributes
    ----------
    word_of : returns a token's word without case, spaces and punctuation; empty for times.
    fit : returns a hint's continuation of committed tokens, with the timestamps that must be there.
    script, live : texts from outside, turned to the open window; they have followed the committed tokens.
    keeps_sent : whether what the draft sent before a correction becomes a hint.
    token_share : returns the time of a token of the session, over its part of a forward pass without tokens.
    """

    word_of: Callable[[int], str] = str
    fit: Callable[[Sequence[int], Sequence[int]], Sequence[int]] = lambda committed, tokens: tokens
    script: ScriptHint | None = None
    live: LiveHint | None = None
    keeps_sent: bool = False
    rates: DraftRates = field(default_factory=DraftRates)
    token_share: Callable[[], float] = float  # 0.0: not known

    @property
    def given(self) -> list[GivenHint]:
        return [hint for hint in (self.script, self.live) if hint is not None]

    def open_window(self, num_kept: int, start_sample: int) -> None:
        for hint in self.given:
            hint.open_window(num_kept, start_sample)

    def open_later(self, previous: Sequence[int], start_sample: int) -> None:
        """Turn to the first window of a session that continues another one."""
        if self.script is not None:
            self.script.open_later(previous)
        if self.live is not None:
            self.live.open_window(0, start_sample)


@dataclass(slots=True)
class SentHint:
    """The draft's text from the last correction on, which it had sent before the correction.

    Attributes
    ----------
    hint : its text.
    end : position of its end, as the draft counted before the correction.
    is_judged : whether its first token after the correction was compared.
    """

    hint: Hint
    end: int
    is_judged: bool = False


class Ledger:
    """Committed tokens, and the candidates for the positions after them.

    Parameters
    ----------
    prefix : committed tokens that are given, which no hint follows.
    opening : tokens of an earlier decoding by the target, with which the draft begins as well.
    shared : hints and rates of the session; by default this window has its own.
    max_pending : most fresh candidates.

    Attributes
    ----------
    correction : position of the last committed token that contradicted the draft; -1 without one.
    """

    def __init__(
        self,
        committed: Sequence[int] = (),
        *,
        prefix: Sequence[int] = (),
        opening: Sequence[int] = (),
        shared: SharedHints | None = None,
        max_pending: int = 256,
    ) -> None:
        self.committed = [*prefix, *committed]
        self.correction = -1
        self._shared = shared or SharedHints()
        self._fresh = [Pending(token, CandidateSource.OWN) for token in opening][:max_pending]
        self._num_own = len(self._fresh)  # the first of them are from the opening
        self._own = Hint(opening, self._shared.word_of, rate=OWN_RATE) if opening else None
        self._sent: SentHint | None = None
        self._max_pending = max_pending
        for token in committed:  # in a window that is resumed
            for _, hint in self._hints():
                hint.follow(token)

    @property
    def held(self) -> int:
        """Position up to which tokens are committed or fresh candidates."""
        return len(self.committed) + len(self._fresh)

    @property
    def opening(self) -> tuple[int, ...]:
        """Fresh candidates that the target had decoded before."""
        return tuple(_tokens(self._fresh[: self._num_own]))

    @property
    def has_candidates(self) -> bool:
        """Whether a forward pass would verify anything."""
        if self._fresh:
            return True
        token_share = self._shared.token_share()
        return any(hint.reach(token_share) and self._text(hint, 0) for _, hint in self._hints())

    def next_candidates(self, max_drafted: int | None = None) -> list[Pending]:
        """Return the candidates for the next forward pass.

        They are the fresh ones and what a hint adds to them. Where both differ, the source that has been
        right more often goes first.

        ``max_drafted``: most candidates of the draft; by default all.
        """
        fresh, hints = self._fresh, self._hints()
        if max_drafted is not None:
            fresh = fresh[: min(self._num_own + max_drafted, max(max_drafted, MAX_REACH))]
        if not hints:
            return list(fresh)
        is_whole = len(fresh) == len(self._fresh)
        token_share = self._shared.token_share()
        for source, hint in sorted(hints, key=lambda each: -each[1].rate):
            text = self._text(hint, len(fresh))
            num_same, reach = num_shared(_tokens(fresh), text), hint.reach(token_share)
            if num_same == len(text) or not reach:
                continue
            if num_same == len(fresh):
                num_added = max(0, reach - num_same) if is_whole else 0
                return fresh + [Pending(token, source) for token in text[num_same:][:num_added]]
            is_drafted = fresh[num_same].source is CandidateSource.DRAFT
            if hint.rate > (self._shared.rates.fresh if is_drafted else OWN_RATE):
                return [Pending(token, source) for token in text[:reach]]
        return list(fresh)

    def _text(self, hint: Hint, num_fresh: int) -> Sequence[int]:
        return self._shared.fit(self.committed, hint.continuation(max_tokens=num_fresh + MAX_REACH))

    def _hints(self) -> list[tuple[CandidateSource, Hint]]:
        hints = [(CandidateSource.SENT, self._sent.hint)] if self._sent is not None else []
        if self._own is not None:
            hints.append((CandidateSource.OWN, self._own))
        hints += [(CandidateSource.GIVEN, hint) for hint in self._shared.given]
        return hints

    def add_candidates(self, base: int, known_committed: int, tokens: Sequence[int]) -> bool:
        """Take candidates for the positions from ``base`` on.

        Parameters
        ----------
        known_committed : how many committed tokens the draft had applied. A block that was drafted before a
            correction, and does not contain it, continues a text that does not exist: it extends a hint.

        Returns
        -------
        Whether there are fresh ones. Else the block is late, since all of it agrees with committed tokens; or
        void, since it leaves a gap, disagrees, or was drafted before a correction.
        """
        end = len(self.committed)
        if known_committed <= self.correction < base:  # the correction that it lacks was sent already
            self._extend_sent(base, tokens)
            return False
        if base > self.held:
            return False
        for position in range(base, min(end, base + len(tokens))):
            if self.committed[position] != tokens[position - base]:
                if position > self.correction:
                    self.correction = position
                    self._keep_sent(tokens[position - base :], position)
                return False
        start = max(base, end)
        index, fresh = start - end, tokens[start - base :]
        overlap = _tokens(self._fresh[index : index + len(fresh)])
        if overlap == list(fresh):
            return bool(fresh)
        num_own = self._num_own
        if any(ours.token != theirs for ours, theirs in zip(self._fresh[index:num_own], fresh, strict=False)):
            return False  # the target's own text is right more often than a draft's
        num_kept = max(0, num_own - index)
        self._fresh[index + num_kept :] = [
            Pending(token, CandidateSource.DRAFT) for token in fresh[num_kept:]
        ]
        del self._fresh[self._max_pending :]
        return True

    def extend_committed(self, tokens: Sequence[int], verified: Sequence[Pending] = ()) -> None:
        """Commit the tokens of a forward pass that verified these candidates."""
        for token, (candidate, source) in zip(tokens, verified, strict=False):
            if source is CandidateSource.DRAFT:
                self._shared.rates.judge_fresh(token == candidate)
        self._pay(tokens, verified)
        num_right = num_shared(_tokens(self._fresh), tokens)
        stale = _tokens(self._fresh[num_right:]) if num_right < len(tokens) else []
        del self._fresh[: num_right if not stale else None]
        self._num_own = max(0, self._num_own - num_right) if self._fresh else 0
        if stale:
            self._append_committed(tokens[: num_right + 1])
            self.correction = len(self.committed) - 1
            self._keep_sent(stale, self.correction)
            tokens = tokens[num_right + 1 :]
        self._append_committed(tokens)

    def _pay(self, tokens: Sequence[int], verified: Sequence[Pending]) -> None:
        """Let given hints pay for their tokens in a forward pass."""
        num_verified = sum(source is CandidateSource.GIVEN for _, source in verified)
        if not num_verified:
            return
        accepted = verified[: num_shared(_tokens(verified), tokens)]
        num_accepted = sum(source is CandidateSource.GIVEN for _, source in accepted)
        for hint in self._shared.given:
            hint.pay(num_verified, num_accepted)

    def _append_committed(self, tokens: Sequence[int]) -> None:
        sent = self._sent
        if tokens and sent is not None and not sent.is_judged:
            if text := sent.hint.continuation(max_tokens=1):  # else nothing had been sent after it
                self._shared.rates.judge_sent(text[0] == tokens[0])
            sent.is_judged = True
        for _, hint in self._hints():
            for token in tokens:
                hint.follow(token)
        self.committed += tokens

    def _keep_sent(self, tokens: Sequence[int], position: int) -> None:
        """Keep what the draft had sent for the positions from a correction on as a hint."""
        if not self._shared.keeps_sent:
            return
        rates = self._shared.rates
        hint = Hint(tokens, self._shared.word_of, rate=rates.sent, survival=rates.fresh)
        for token in self.committed[position:]:
            hint.follow(token)
        self._sent = SentHint(hint, position + len(tokens))

    def _extend_sent(self, base: int, tokens: Sequence[int]) -> None:
        """Extend the hint by a block that was on its way at the correction."""
        sent = self._sent
        if sent is not None and base <= sent.end < base + len(tokens):
            new = tokens[sent.end - base :]
            if len(sent.hint) + len(new) <= self._max_pending:
                sent.hint.extend(new)
                sent.end += len(new)


def _tokens(pending: Iterable[Pending]) -> list[int]:
    return [token for token, _ in pending]
