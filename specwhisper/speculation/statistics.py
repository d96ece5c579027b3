"""Statistics of a session, counted from its messages."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import zip_longest

from specwhisper.types import Candidates, Commit, Keyed, WindowOpened

CURRENT = ("token_ns", "gamma", "draft_note")  # values, not totals


@dataclass(slots=True)
class DraftReport:
    """A draft's work since its last report.

    Attributes
    ----------
    num_steps, forward_ns : its steps, and their time.
    num_answers, network_ns : answers to blocks, and the time they took from sending the block, without its
        time at the target. An answer to several blocks counts from the last of them.
    num_judged, num_corrections : drafted tokens after a right text that the target's tokens confirmed or
        corrected, and those that were corrected.
    num_realigned : corrections after which the next token was the one that was drafted before them.
    gamma : tokens of a block now; 0 if it sends none.
    note : why it drafts nothing from now on; empty while it drafts.
    """

    num_steps: int = 0
    forward_ns: int = 0
    network_ns: int = 0
    num_answers: int = 0
    num_judged: int = 0
    num_corrections: int = 0
    num_realigned: int = 0
    gamma: int = 0
    note: str = ""


@dataclass(slots=True)
class SpeculationStatistics(Keyed):
    """Running totals of one session; ratios are of sums, never means of ratios.

    It prints as five lines, those of :meth:`described`.

    Attributes
    ----------
    num_drafted : tokens sent as candidates.
    num_verified, num_accepted : candidates that went through a forward pass, and those that were kept. Those
        after a wrong candidate of a hint do not count: they say nothing about the draft.
    num_hinted, num_hinted_accepted : the same for candidates from hints.
    num_self_decoded : tokens that the target decoded without a candidate.
    num_committed : committed tokens, end-of-text included.
    num_forwards, forward_ns : forward passes of the target for this session, with those that detect the
        language, and their time.
    num_align_forwards : further forward passes for word times.
    acceptance_histogram : entry n counts the forward passes with candidates that kept n of them.
    num_blocks : candidate blocks sent; in lock-step these are the round trips.
    num_draft_steps, draft_ns : the draft's steps, and their time.
    network_ns, num_answers, num_judged, num_corrections, num_realigned : as in :class:`DraftReport`.
    token_ns : time of one more token in a forward pass, by the target's estimate.
    gamma, draft_note : see :class:`DraftReport`.
    """

    num_drafted: int = 0
    num_verified: int = 0
    num_accepted: int = 0
    num_hinted: int = 0
    num_hinted_accepted: int = 0
    num_self_decoded: int = 0
    num_committed: int = 0
    num_forwards: int = 0
    num_align_forwards: int = 0
    acceptance_histogram: list[int] = field(default_factory=list)
    num_blocks: int = 0
    num_windows: int = 0
    queue_ns: int = 0
    forward_ns: int = 0
    encode_ns: int = 0
    align_ns: int = 0
    num_draft_steps: int = 0
    draft_ns: int = 0
    min_round_trip_ns: int = 0
    network_ns: int = 0
    num_answers: int = 0
    num_judged: int = 0
    num_corrections: int = 0
    num_realigned: int = 0
    token_ns: int = 0
    gamma: int = 0
    draft_note: str = ""

    @property
    def num_wasted(self) -> int:
        """Drafted tokens that were not kept, verified or not."""
        return self.num_drafted - self.num_accepted

    @property
    def acceptance_rate(self) -> float:
        """Accepted per verified candidate; 0 without candidates."""
        return self.num_accepted / self.num_verified if self.num_verified else 0.0

    @property
    def alpha(self) -> float:
        """Share of drafted tokens that are right after a right text; 0 without any."""
        return 1 - self.num_corrections / self.num_judged if self.num_judged else 0.0

    @property
    def mean_run(self) -> float:
        """Right tokens of the draft in a row; a window or a correction ends a run."""
        num_right = self.num_judged - self.num_corrections
        return num_right / (self.num_corrections + self.num_windows) if num_right else 0.0

    @property
    def tokens_per_forward(self) -> float:
        """Committed tokens per forward pass of the target; 0 before the first."""
        return self.num_committed / self.num_forwards if self.num_forwards else 0.0

    @property
    def overall_acceptance_rate(self) -> float:
        """:attr:`acceptance_rate` under the name that other speculative decoders use."""
        return self.acceptance_rate

    @property
    def avg_tokens_per_iteration(self) -> float:
        """:attr:`tokens_per_forward` under the name that other speculative decoders use."""
        return self.tokens_per_forward

    def __str__(self) -> str:
        return "\n".join(f"{label}: {value}" for label, value in self.described().items())

    def described(self) -> dict[str, str]:
        """Return its five main figures in words, by label."""
        tokens = f"{self.num_committed} in {self.num_forwards} forward passes"
        acceptance, hints, wasted = "no verified candidates", "none", "no drafted tokens"
        if self.num_verified:
            acceptance = f"{self.acceptance_rate:.1%} of {self.num_verified} verified candidates"
        if self.num_hinted:
            hints = f"{self.num_hinted_accepted} of {self.num_hinted} tokens accepted"
        if self.num_drafted:
            wasted = f"{self.num_wasted} of {self.num_drafted} drafted tokens"
        return {
            "tokens": f"{tokens}, {self.tokens_per_forward:.2f} tokens per pass",
            "acceptance": acceptance,
            "hints": hints,
            "self-decoded": f"{self.num_self_decoded} of {self.num_committed} tokens",
            "wasted": wasted,
        }

    def observe(self, message: WindowOpened | Candidates | Commit | DraftReport) -> None:
        """Count a message of the session, or a report of its draft."""
        match message:
            case WindowOpened():
                self.num_windows += 1
                self.num_forwards += bool(message.language_probs)  # a separate pass detected the language
            case Candidates():
                self.num_blocks += 1
                self.num_drafted += len(message.tokens)
            case Commit() if message.tokens:
                self._observe_forward(message)
            case DraftReport():
                self._observe_draft(message)

    def add(self, other: SpeculationStatistics) -> None:
        """Add another session's totals, and keep the shorter of the shortest round trips."""
        trips_ns = [ns for ns in (self.min_round_trip_ns, other.min_round_trip_ns) if ns]
        pairs = zip_longest(self.acceptance_histogram, other.acceptance_histogram, fillvalue=0)
        self.acceptance_histogram = [ours + theirs for ours, theirs in pairs]
        for name in (
            each.name for each in fields(self) if each.name not in ("acceptance_histogram", *CURRENT)
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in CURRENT:
            setattr(self, name, getattr(other, name) or getattr(self, name))
        self.min_round_trip_ns = min(trips_ns, default=0)

    def followed_by(self, later: SpeculationStatistics) -> SpeculationStatistics:
        """Return the totals with a later call's; current values are the later ones."""
        total = SpeculationStatistics()
        total.add(self)
        total.add(later)
        for name in CURRENT:
            setattr(total, name, getattr(later, name))
        total.min_round_trip_ns = later.min_round_trip_ns or self.min_round_trip_ns
        return total

    def _observe_draft(self, report: DraftReport) -> None:
        self.num_draft_steps += report.num_steps
        self.draft_ns += report.forward_ns
        self.network_ns += report.network_ns
        self.num_answers += report.num_answers
        self.num_judged += report.num_judged
        self.num_corrections += report.num_corrections
        self.num_realigned += report.num_realigned
        self.gamma = report.gamma or self.gamma
        self.draft_note = report.note or self.draft_note

    def _observe_forward(self, commit: Commit) -> None:
        self.num_forwards += 1
        self.num_committed += len(commit.tokens)
        self.token_ns = commit.timing.token_ns or self.token_ns
        self.num_self_decoded += commit.num_self_decoded
        self.queue_ns += commit.timing.queue_ns
        self.forward_ns += commit.timing.forward_ns + commit.timing.detect_ns
        self.encode_ns += commit.timing.encode_ns
        self.num_align_forwards += commit.num_align_forwards
        self.align_ns += commit.timing.align_ns
        self.num_hinted += commit.num_hinted
        self.num_hinted_accepted += commit.num_accepted - commit.num_drafted_accepted
        num_verified, num_accepted = commit.num_drafted_verified, commit.num_drafted_accepted
        self.num_verified += num_verified
        self.num_accepted += num_accepted
        if num_verified:
            missing = num_accepted + 1 - len(self.acceptance_histogram)
            self.acceptance_histogram += [0] * max(0, missing)
            self.acceptance_histogram[num_accepted] += 1
