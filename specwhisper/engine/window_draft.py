"""What a draft believes of one window, open or expected, in a slot of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import exp

from specwhisper.model.choosing import Scores
from specwhisper.speculation.belief import Belief
from specwhisper.types import Believed, Candidates, Commit, Proposal, Window


@dataclass(slots=True, eq=False)
class WindowDraft:
    """A window, the belief about it, and what was sent of that.

    Attributes
    ----------
    window : ``None`` while there is none.
    is_expected : whether the target has not opened it yet.
    encoding : of this window, or of the last one in the slot.
    encoded : first frame and frames of the audio in the slot.
    proposals : what tokens were drawn from, by position.
    distances : how far behind the known end, or the begin of its run, tokens were drafted, by position.
    log_probs : of drafted tokens, by position.
    gave_way : an empty block was sent and not answered yet.
    sent_ns : when the blocks were sent that are not answered; ``num_answered`` are.
    """

    slot: int
    initial_credit: int
    belief: Belief = field(init=False)
    window: Window | None = None
    is_expected: bool = False
    encoding: Future[None] | None = None
    encoded: tuple[int, int] | None = None
    proposals: dict[int, Proposal] = field(default_factory=dict)
    distances: dict[int, int] = field(default_factory=dict)
    log_probs: dict[int, float] = field(default_factory=dict)
    gave_way: bool = False
    sent_ns: deque[int] = field(default_factory=deque)
    num_answered: int = 0

    def __post_init__(self) -> None:
        self.belief = Belief(credit=self.initial_credit)

    @property
    def is_ready(self) -> bool:
        """Whether the draft has heard the window."""
        return self.window is not None and self.encoding is not None and self.encoding.done()

    @property
    def num_unsent(self) -> int:
        """Tokens that the target has not been told."""
        return len(self.belief.tokens) - self.belief.num_sent

    @property
    def believed(self) -> Believed | None:
        """All that is believed of the window."""
        return None if self.window is None else Believed(self.window, tuple(self.belief.tokens))

    @property
    def confidence(self) -> float:
        """How likely all is right that is believed behind the committed end, by the draft itself."""
        drafted = range(self.belief.num_committed, len(self.belief.tokens))
        return exp(sum(self.log_probs.get(position, 0.0) for position in drafted))

    def begin(
        self, window: Window, *, is_expected: bool, expected: Sequence[int] = (), num_blocks: int = 0
    ) -> None:
        """Believe of a window what the target expects; of blocks sent before, so many, none counts."""
        self.window, self.is_expected = window, is_expected
        self.belief = Belief(credit=self.initial_credit, num_blocks=num_blocks, reused=expected)
        self.proposals, self.distances, self.log_probs = {}, {}, {}
        self.gave_way = False
        self.sent_ns.clear()
        self.num_answered = num_blocks

    def foresaw(self, window: Window) -> bool:
        """Tell whether this is what was expected."""
        expected = self.window
        return expected is not None and (
            (expected.id, expected.start_frame, expected.prompt, expected.temperature, expected.attempt)
            == (window.id, window.start_frame, window.prompt, window.temperature, window.attempt)
            and expected.num_frames == window.num_frames
        )

    def extend(self, score: Scores, *, distance_from: int) -> None:
        """Believe one token more; its distance is counted from a position."""
        position = len(self.belief.tokens)
        self.belief.tokens.append(score.tokens[0])
        self.distances[position] = position - distance_from
        self.log_probs[position] = score.log_probs[0]
        self.proposals.update((position, proposal) for proposal in score.proposals)

    def take_block(self, max_tokens: int, now_ns: int) -> Candidates:
        """Give the next block, which counts as sent from now on."""
        if self.window is None:
            raise RuntimeError("A draft without a window has no candidates.")
        base, tokens = self.belief.take_block(max_tokens)
        self.sent_ns.append(now_ns)
        self.gave_way = not tokens
        places = range(base, base + len(tokens))
        return Candidates(
            self.window.id,
            base,
            self.belief.num_committed,
            tokens,
            number=self.belief.num_blocks,
            proposals=tuple(self.proposals[i] for i in places if i in self.proposals),
            start_frame=self.window.start_frame if self.is_expected else None,
        )

    def answered_since_ns(self, commit: Commit) -> int | None:
        """Give when the newest block was sent that a commit answers; ``None`` if it answers none."""
        sent_ns = None
        while self.num_answered < commit.candidates_received and self.sent_ns:
            self.num_answered += 1
            sent_ns = self.sent_ns.popleft()
        return sent_ns
