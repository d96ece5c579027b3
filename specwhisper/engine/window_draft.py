"""The draft's side of a window, in the slot of its session."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import exp
from typing import TYPE_CHECKING

from specwhisper.engine.encodings import AudioSpan
from specwhisper.speculation.belief import Belief
from specwhisper.speculation.hints.hint import Hint
from specwhisper.types import Candidates, Commit, Window

if TYPE_CHECKING:
    from specwhisper.model.choosing import Scores


@dataclass(slots=True, eq=False)
class WindowDraft:
    """A slot, the window in it, the belief about that window, and its blocks.

    Attributes
    ----------
    window : ``None`` while there is none.
    is_predicted : whether the target has not opened it yet.
    is_known : whether the draft knows its language and task; without, it has no candidates.
    encoding : of this window, or of the last one in the slot.
    encoded : the audio in the slot.
    stale : what was drafted before the last contradictions; it may be drafted again.
    expected : position after the last contradiction and the token drafted for it, until it is judged.
    log_probs : of drafted tokens, by position.
    has_sent_empty : whether the newest block was empty and is not answered.
    sent_ns : when each unanswered block was sent; ``num_answered`` blocks are answered.
    """

    slot: int
    initial_credit: int
    belief: Belief = field(init=False)
    window: Window | None = None
    is_predicted: bool = False
    is_known: bool = True
    encoding: Future[None] | None = None
    encoded: AudioSpan | None = None
    stale: Hint | None = None
    expected: tuple[int, int] | None = None
    log_probs: dict[int, float] = field(default_factory=dict)
    has_sent_empty: bool = False
    sent_ns: deque[int] = field(default_factory=deque)
    num_answered: int = 0

    def __post_init__(self) -> None:
        self.belief = Belief(credit=self.initial_credit)

    @property
    def is_ready(self) -> bool:
        """Whether there is a window and it is encoded."""
        return self.window is not None and self.encoding is not None and self.encoding.done()

    @property
    def num_unsent(self) -> int:
        """Believed tokens that were not sent."""
        return len(self.belief.tokens) - self.belief.num_sent

    @property
    def confidence(self) -> float:
        """Probability, by the draft, that all tokens after the committed ones are right."""
        drafted = range(self.belief.num_committed, len(self.belief.tokens))
        return exp(sum(self.log_probs.get(position, 0.0) for position in drafted))

    def begin(
        self, window: Window, *, is_predicted: bool, opening: Sequence[int] = (), num_blocks: int = 0
    ) -> None:
        """Begin with a window.

        Parameters
        ----------
        opening : text of the target with which the belief begins (:class:`WindowOpened`).
        num_blocks : blocks about this window that were sent before; none of them counts any more.
        """
        self.window, self.is_predicted = window, is_predicted
        self.belief = Belief(credit=self.initial_credit, num_blocks=num_blocks, opening=opening)
        self.stale = self.expected = None
        self.log_probs = {}
        self.has_sent_empty = False
        self.sent_ns.clear()
        self.num_answered = num_blocks

    def predicts(self, window: Window) -> bool:
        """Return whether a window is the one that was predicted."""
        predicted = self.window
        return predicted is not None and (
            (predicted.id, predicted.start_frame, predicted.prompt, predicted.temperature, predicted.attempt)
            == (window.id, window.start_frame, window.prompt, window.temperature, window.attempt)
            and predicted.num_frames == window.num_frames
        )

    def next_stale(self, max_tokens: int) -> Sequence[int]:
        """Return stale tokens that one draft step may draft again, beside a new one."""
        stale = self.stale
        return () if stale is None else stale.continuation(max_tokens=min(max_tokens, stale.reach()))

    def extend(self, scores: Scores, index: int) -> None:
        """Append the token after ``index`` candidates."""
        position, token = len(self.belief.tokens), scores.tokens[index]
        self.belief.tokens.append(token)
        self.log_probs[position] = scores.log_probs[index]
        if self.stale is not None:
            self.stale.follow(token)

    def keep_stale(self, old: Sequence[int], agreed: int, word_of: Callable[[int], str]) -> None:
        """Keep the tokens after a contradiction as a hint.

        Parameters
        ----------
        old : the belief before a commit, which agrees with it up to position ``agreed``.
        """
        later = () if self.stale is None else self.stale.continuation()
        if agreed < len(old):
            self.stale = Hint([*old[agreed:], *later], word_of)
            self.stale.follow(self.belief.tokens[agreed])
            next_token = self.stale.continuation(max_tokens=1)
            if agreed in self.log_probs:  # drafted, not from the target's earlier text
                self.expected = (agreed + 1, next_token[0] if next_token else -1)
            agreed += 1
        if self.stale is not None:
            for token in self.belief.tokens[agreed:]:
                self.stale.follow(token)

    def judge_realignment(self) -> bool | None:
        """Return whether the token after the last contradiction was the expected one.

        ``None`` if it is unknown.
        """
        if self.expected is None or self.belief.num_committed <= self.expected[0]:
            return None
        position, token = self.expected
        self.expected = None
        return self.belief.tokens[position] == token

    def take_block(self, max_tokens: int, now_ns: int) -> Candidates:
        """Return the next block; it counts as sent."""
        if self.window is None:
            raise RuntimeError("A draft without a window has no candidates.")
        base, tokens = self.belief.cut_block(max_tokens)
        self.sent_ns.append(now_ns)
        self.has_sent_empty = not tokens
        return Candidates(
            self.window.id,
            base,
            self.belief.num_committed,
            tokens,
            block_number=self.belief.num_blocks,
            start_frame=self.window.start_frame if self.is_predicted else None,
        )

    def pop_answered_ns(self, commit: Commit) -> int | None:
        """Return when the newest block that a commit answers was sent, if any."""
        sent_ns = None
        while self.num_answered < commit.answered_block and self.sent_ns:
            self.num_answered += 1
            sent_ns = self.sent_ns.popleft()
        return sent_ns
