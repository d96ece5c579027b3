"""A window that the target has opened: its ledger, and the commits about it."""

from __future__ import annotations

from dataclasses import dataclass, field

from specwhisper.model.choosing import ProbeResult, Row, Scores
from specwhisper.model.rules import max_initial_timestamp
from specwhisper.model.sampling import window_sampling
from specwhisper.options import DecodingOptions
from specwhisper.speculation.acceptance import Verdict
from specwhisper.speculation.ledger import CandidateSource, Ledger, Offer, Pending
from specwhisper.speculation.scheduling import Request
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Candidates, Commit, Timing, Window


@dataclass(slots=True, eq=False)
class TargetWindow:
    """An open window of a session.

    Attributes
    ----------
    max_ahead_tokens : credit: candidates that the draft may send after the committed tokens.
    log_probs : of each committed token.
    probe_result : silence and languages at the window's start, once they are known.
    newest_block, newest_block_ns : number of the draft's newest block, and when it arrived; 0 without one.
    candidates : of the next forward pass; ``None`` while they are not chosen.
    may_self_decode : whether the target may append one token without candidates, in a mode that waits for
        them.
    """

    window: Window
    ledger: Ledger
    max_ahead_tokens: int
    log_probs: list[float] = field(default_factory=list)
    probe_result: ProbeResult | None = None
    newest_block: int = 0
    newest_block_ns: int = 0
    candidates: list[Pending] | None = None
    may_self_decode: bool = False

    @property
    def num_committed(self) -> int:
        """Committed tokens of the window."""
        return len(self.ledger.committed)

    def matches(self, block: Candidates) -> bool:
        """Return whether a block is about this window, as it was opened."""
        if block.window_id != self.window.id:
            return False
        is_first_attempt = self.window.attempt == 0
        return block.start_frame is None or (
            block.start_frame == self.window.start_frame and is_first_attempt
        )

    def offer(self, block: Candidates, received_ns: int) -> bool:
        """Take a block; return whether the commit of a forward pass will answer it."""
        self.newest_block = max(self.newest_block, block.block_number)
        self.newest_block_ns = received_ns
        ledger, self.candidates = self.ledger, None
        if not block.tokens and block.base == self.num_committed:
            self.may_self_decode = True
            return True
        return ledger.offer(block.base, block.known_committed, block.tokens) is Offer.FRESH

    def request(self, slot_length: int, max_width: int, num_missed: int) -> Request:
        """Return the tokens to append; the slot has ``slot_length`` of them."""
        room = self.window.max_new_tokens - self.num_committed - 1  # one is the target's own
        if self.candidates is None:
            self.candidates = self.ledger.candidates(max_width)[:room]
        return Request(
            num_needed=len(self.window.prompt) + self.num_committed - slot_length,
            num_candidates=len(self.candidates),
            num_missed=num_missed,
        )

    def row(
        self,
        slot: int,
        slot_length: int,
        num_candidates: int,
        vocabulary: Vocabulary,
        options: DecodingOptions,
    ) -> Row:
        """Return the next forward pass's row, with the first ``num_candidates``."""
        window, ledger = self.window, self.ledger
        self.candidates = candidates = (self.candidates or [])[:num_candidates]
        start = vocabulary.start_of_transcript
        has_probe = slot_length == 0 and start in window.prompt
        return Row(
            slot=slot,
            tokens=self._missing(slot_length) + [token for token, _ in candidates],
            num_candidates=len(candidates),
            generated=ledger.committed,
            timestamps=options.timestamps,
            max_initial_timestamp=max_initial_timestamp(options),
            sampling=window_sampling(window, options),
            acceptance_threshold=options.acceptance_threshold,
            probe=window.prompt.index(start) if has_probe else None,
        )

    def _missing(self, slot_length: int) -> list[int]:
        """Return the tokens of prompt and committed text that the slot lacks."""
        prompt, committed = self.window.prompt, self.ledger.committed
        if slot_length >= len(prompt):
            return committed[slot_length - len(prompt) :]
        return [*prompt[slot_length:], *committed]

    def append(self, verdict: Verdict, scores: Scores, timing: Timing, *, num_verified: int) -> Commit:
        """Append the tokens of a forward pass and return their commit."""
        base, num_tokens = self.num_committed, len(verdict.tokens)
        verified, self.candidates = (self.candidates or [])[:num_verified], None
        sources = [source for _, source in verified]
        num_drafted = sources.count(CandidateSource.DRAFT)
        self.ledger.append(verdict.tokens, verified)
        self.log_probs += scores.log_probs[:num_tokens]
        self.probe_result = scores.probe_result or self.probe_result
        self.may_self_decode = False
        end = base + num_tokens
        return Commit(
            window_id=self.window.id,
            base=base,
            tokens=verdict.tokens,
            log_probs=tuple(scores.log_probs[:num_tokens]),
            margins=tuple(scores.margins[:num_tokens]),
            num_verified=num_verified,
            num_accepted=verdict.num_accepted,
            num_hinted=len(sources) - num_drafted,
            num_hinted_first=sources.index(CandidateSource.DRAFT) if num_drafted else len(sources),
            num_self_decoded=int(num_verified == 0),
            answered_block=self.newest_block,
            held=self.ledger.held,
            credit=end + self.max_ahead_tokens,
            is_final=verdict.is_final,
            timing=timing,
        )

    def acknowledgement(self, now_ns: int) -> Commit:
        """Return an empty commit, which reports the state of the window to the draft."""
        end = self.num_committed
        return Commit(
            window_id=self.window.id,
            base=end,
            tokens=(),
            answered_block=self.newest_block,
            held=self.ledger.held,
            credit=end + self.max_ahead_tokens,
            timing=Timing(block_age_ns=self.block_age_ns(now_ns)),
        )

    def block_age_ns(self, now_ns: int) -> int:
        """Return how long the newest block has been here; 0 without one."""
        return now_ns - self.newest_block_ns if self.newest_block else 0
