"""A session on the draft: its windows, its belief, and when it drafts and sends."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from specwhisper.audio.recording import Recording
from specwhisper.engine.encodings import AudioSpan
from specwhisper.options import DecodingOptions
from specwhisper.speculation.belief import Belief, Judgement
from specwhisper.speculation.draft_length import MAX_CHOSEN_GAMMA, BlockSize, DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import Windows
from specwhisper.types import Candidates, Commit, Hypothesis, Mode, TimedHint

MAX_REDRAFTED = 16  # stale tokens in a draft step


@dataclass(frozen=True, slots=True)
class Drafted:
    """The output of a draft step.

    Attributes
    ----------
    hypothesis : text of live audio, to be shown.
    knows_language : whether it knows the language that is spoken now, where that has changed.
    hint : text of a recogniser that has other tokens than the target.
    """

    candidates: Candidates | None
    report: DraftReport = field(default_factory=DraftReport)
    hypothesis: Hypothesis | None = None
    knows_language: bool | None = None
    hint: TimedHint | None = None


@dataclass(slots=True, eq=False)
class DraftSession:
    """The state of a session; it decides when to draft and when to send. Its mode drafts.

    Attributes
    ----------
    max_positions : most tokens that the model holds, prompt included.
    max_ahead_tokens : the target's credit in a new window.
    belief : about the open window; before the target opens the first one, about its prediction.
    is_known : whether the draft knows the window's language and task; without, it has no candidates.
    encoding : the slot's last one, queued, running or done; ``encoded`` is its audio.
    """

    length: DraftLength
    options: DecodingOptions
    recording: Recording
    windows: Windows
    vocabulary: Vocabulary
    max_positions: int
    slot: int
    max_ahead_tokens: int
    block_size: BlockSize = field(init=False)
    belief: Belief | None = None
    is_known: bool = True
    encoding: Future[None] | None = None
    encoded: AudioSpan | None = None
    report: DraftReport = field(default_factory=DraftReport)
    newest_block: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.block_size = BlockSize(self.length)

    @property
    def has_work(self) -> bool:
        return self.can_draft() or self.block_is_due()

    @property
    def is_ready(self) -> bool:
        """Whether there is a window and it is encoded."""
        return self.belief is not None and self.encoding is not None and self.encoding.done()

    def take_drafted(self) -> list[Drafted]:
        """Return what is to be passed on besides blocks."""
        return []

    def take_report(self) -> DraftReport:
        report, self.report = self.report, DraftReport()
        report.gamma = self.block_size.gamma
        return report

    def can_draft(self) -> bool:
        """Return whether the window may have one more drafted token."""
        belief = self.belief
        if belief is None or not self.is_known or not self.is_ready:
            return False
        tokens = belief.tokens
        if (tokens and tokens[-1] in self.vocabulary.ends) or len(tokens) >= self._room(belief):
            return False
        min_confidence = self.length.min_confidence
        return not min_confidence or belief.confidence >= min_confidence

    def _room(self, belief: Belief) -> int:
        """Return the position up to which (exclusive) the window may be drafted now."""
        window = belief.window
        return min(window.max_new_tokens, self.max_positions - len(window.prompt), self._limit(belief))

    def _limit(self, belief: Belief) -> int:
        """Return that position by the session's mode alone."""
        if not self.length.mode.is_lock_step:
            return belief.credit
        if belief.blocks_in_flight:
            return len(belief.tokens)
        return min(belief.credit, belief.num_sent + self.block_size.gamma)

    def block_is_due(self) -> bool:
        """Return whether to send a block: it is full, or nothing can be added to it.

        An empty block lets a target that waits for candidates decode one token by itself.
        """
        belief, mode = self.belief, self.length.mode
        if belief is None or not self.is_ready or (mode.is_lock_step and belief.blocks_in_flight):
            return False
        if belief.num_unsent >= self.block_size.gamma:
            return True
        if self.can_draft():
            return False
        if belief.num_unsent or belief.is_predicted:
            return belief.num_unsent > 0
        has_nothing = belief.num_committed == len(belief.tokens) and not belief.blocks_in_flight
        return has_nothing and not belief.has_sent_empty and not mode.self_decodes

    def block_tokens(self, belief: Belief) -> int:
        """Return the size of the next block: tokens that are there already go together."""
        gamma = self.block_size.gamma
        if self.length.gamma is not None or self.length.mode is not Mode.FULL:
            return gamma
        return max(gamma, min(belief.num_unsent, MAX_CHOSEN_GAMMA))

    def stale_tokens(self, belief: Belief) -> Sequence[int]:
        """Return the stale tokens that the next draft step may draft again."""
        if self.length.mode is not Mode.FULL:
            return ()
        room = self._room(belief) - len(belief.tokens) - 1
        return belief.next_stale(min(room, MAX_REDRAFTED)) if room > 0 else ()

    def observe_step(self, forward_ns: int, *, is_plain: bool) -> None:
        """Count a draft step; a plain one drafts one token."""
        self.report.num_steps += 1
        self.report.forward_ns += forward_ns
        if is_plain:
            self.block_size.observe_step(forward_ns)

    def observe_commit(self, commit: Commit, judgement: Judgement, now_ns: int) -> None:
        """Count a commit that the belief has taken."""
        report = self.report
        if judgement.sent_ns is not None:
            report.network_ns += max(0, now_ns - judgement.sent_ns - commit.timing.block_age_ns)
            report.num_answers += 1
        if commit.tokens:
            self.block_size.observe_forward(commit.timing.batch_size)
        report.num_judged += judgement.num_judged
        report.num_corrections += judgement.num_corrections
        report.num_realigned += judgement.is_realigned

    def target_gave_up_waiting(self, commit: Commit) -> bool:
        """Return whether a target that waits for candidates decoded by itself for lack of them.

        It also does so when the tokens of a forward pass are used up: then it holds candidates.
        """
        has_self_decoded = commit.num_self_decoded > 0 and not self.length.mode.self_decodes
        return has_self_decoded and commit.held == commit.base + len(commit.tokens)
