"""A session on the draft: its windows, and when it drafts and sends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from specwhisper.audio.recording import Recording
from specwhisper.engine.window_draft import WindowDraft
from specwhisper.options import DecodingOptions
from specwhisper.speculation.belief import Belief
from specwhisper.speculation.draft_length import MAX_CHOSEN_GAMMA, BlockSize, DraftLength
from specwhisper.speculation.statistics import DraftReport
from specwhisper.transcription.windows import Windows
from specwhisper.types import UNKNOWN_AGE_NS, Candidates, Commit, Hypothesis, Mode, TimedHint

NO_REPORT = DraftReport()
MAX_REDRAFTED = 16  # stale tokens in a draft step


@dataclass(frozen=True, slots=True)
class Drafted:
    """The output of a draft step.

    Attributes
    ----------
    candidates : a block to send, if there is one.
    report : the draft's work since the last report.
    hypothesis : text of live audio, to be shown.
    knows_language : whether it knows the language that is spoken now, where that has changed.
    hint : text of a recogniser that has other tokens than the target.
    """

    candidates: Candidates | None
    report: DraftReport = NO_REPORT
    hypothesis: Hypothesis | None = None
    knows_language: bool | None = None
    hint: TimedHint | None = None


@dataclass(slots=True, eq=False)
class DraftState:
    """The state of a session; it decides when to draft and when to send.

    Attributes
    ----------
    ends, max_positions : of the model: tokens that end a window, and most tokens with the prompt.
    current : the open window; before the target opens the first one, how that is predicted.
    word_of : returns the word of a token, by which stale tokens are compared with committed ones.
    report : what was not reported yet.
    newest_block : of the last block that was sent: the id of its window, and its number.
    """

    length: DraftLength
    block_size: BlockSize
    options: DecodingOptions
    recording: Recording
    windows: Windows
    ends: Collection[int]
    max_positions: int
    word_of: Callable[[int], str]
    current: WindowDraft
    report: DraftReport = NO_REPORT
    newest_block: tuple[int, int] = (0, 0)

    @property
    def has_work(self) -> bool:
        """Whether the session has something to draft or to send."""
        return self.can_draft() or self.block_is_due()

    def take_drafted(self) -> list[Drafted]:
        """Return what else is to be passed on."""
        return []

    def take_report(self) -> DraftReport:
        """Return the work since the last report."""
        report, self.report = self.report, NO_REPORT
        return replace(report, gamma=self.block_size.gamma)

    def can_draft(self) -> bool:
        """Return whether the window may have one more drafted token."""
        draft = self.current
        if draft.window is None or not draft.is_known or not draft.is_ready:
            return False
        tokens = draft.belief.tokens
        if tokens and tokens[-1] in self.ends:
            return False
        if len(tokens) >= self._room():
            return False
        min_confidence = self.length.min_confidence
        return not min_confidence or draft.confidence >= min_confidence

    def _room(self) -> int:
        """Return the position up to which (exclusive) the window may be drafted now."""
        draft = self.current
        if draft.window is None:
            return 0
        room = min(draft.window.max_new_tokens, self.max_positions - len(draft.window.prompt))
        return min(self._limit(draft.belief), room)

    def _limit(self, belief: Belief) -> int:
        """Return the position up to which (exclusive) a belief may be extended now."""
        if not self.length.mode.drafts:
            return belief.num_committed
        if not self.length.mode.is_lock_step:
            return belief.credit
        if belief.blocks_in_flight:
            return len(belief.tokens)
        return min(belief.credit, belief.num_sent + self.block_size.gamma)

    def block_is_due(self) -> bool:
        """Return whether to send a block: it is full, or nothing can be added to it.

        An empty block lets a target that waits for candidates decode one token by itself.
        """
        draft = self.current
        if not draft.is_ready:
            return False
        belief, mode = draft.belief, self.length.mode
        if mode.is_lock_step and belief.blocks_in_flight:
            return False
        if draft.num_unsent >= self.block_size.gamma:
            return True
        if self.can_draft():
            return False
        if draft.num_unsent or draft.is_predicted:
            return draft.num_unsent > 0
        has_nothing = belief.num_committed == len(belief.tokens) and not belief.blocks_in_flight
        return has_nothing and not draft.has_sent_empty and mode.drafts and not mode.self_decodes

    def stale_tokens(self) -> Sequence[int]:
        """Return the stale tokens that the next draft step may draft again."""
        if self.length.mode is not Mode.FULL:
            return ()
        draft = self.current
        room = self._room() - len(draft.belief.tokens) - 1
        return draft.next_stale(min(room, MAX_REDRAFTED)) if room > 0 else ()

    def block_tokens(self) -> int:
        """Return the size of the next block: tokens that are there already go together."""
        gamma = self.block_size.gamma
        if self.length.gamma is not None or self.length.mode is not Mode.FULL:
            return gamma
        return max(gamma, min(self.current.num_unsent, MAX_CHOSEN_GAMMA))

    def observe_step(self, forward_ns: int, *, is_plain: bool) -> None:
        """Count a draft step; a plain one drafts one token."""
        self.report += DraftReport(1, forward_ns)
        if is_plain:
            self.block_size.observe_step(forward_ns)

    def observe_times(self, commit: Commit, now_ns: int) -> None:
        """Measure the round trip of a commit's answer, and its forward pass."""
        timing = commit.timing
        sent_ns = self.current.pop_answered_ns(commit)
        if sent_ns is not None and timing.block_age_ns != UNKNOWN_AGE_NS:
            round_trip_ns = max(0, now_ns - sent_ns - timing.block_age_ns)
            self.report += DraftReport(network_ns=round_trip_ns, num_answers=1)
        if commit.tokens:
            self.block_size.observe_forward(timing.batch_size)

    def take_commit(self, commit: Commit) -> int:
        """Apply a commit to the open window's belief.

        Returns
        -------
        The position up to which the old belief agrees with the commit.
        """
        draft, belief = self.current, self.current.belief
        old = list(belief.tokens)
        num_known, num_drafted = belief.num_committed, len(old)
        agreed = belief.apply_commit(
            commit.base,
            commit.tokens,
            held=commit.held,
            blocks_answered=commit.answered_block,
            credit=commit.credit,
            lost_all=not self.length.mode.self_decodes and _has_waited_in_vain(commit),
        )
        if (is_realigned := draft.judge_realignment()) is not None:  # before another contradiction
            self.report += DraftReport(num_realigned=int(is_realigned))
        draft.keep_stale(old, agreed, self.word_of)
        draft.has_sent_empty = False
        end = min(agreed + 1, num_drafted, belief.num_committed)
        judged = [position for position in range(num_known, end) if position in draft.log_probs]
        num_right = sum(position < agreed for position in judged)
        self.report += DraftReport(num_judged=len(judged), num_corrections=len(judged) - num_right)
        return agreed


def _has_waited_in_vain(commit: Commit) -> bool:
    """Return whether a target decoded by itself for lack of candidates.

    It also does so when the tokens of a forward pass are used up: then it holds candidates.
    """
    return commit.num_self_decoded > 0 and commit.held == commit.base + len(commit.tokens)
