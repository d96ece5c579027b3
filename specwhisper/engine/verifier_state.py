"""One transcription on the target: its slot, its audio and the window that is open."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from specwhisper.audio.recording import CONTEXT_SAMPLES, Recording
from specwhisper.errors import InvalidAudio, InvalidRequest
from specwhisper.model.choosing import Heard, Row, Scores
from specwhisper.model.rules import max_initial_timestamp
from specwhisper.model.sampling import window_sampling
from specwhisper.options import Acceptance, DecodingOptions
from specwhisper.speculation.acceptance import Verdict
from specwhisper.speculation.arrivals import Arrival, Arrivals
from specwhisper.speculation.ledger import Ledger, Offer
from specwhisper.speculation.scheduling import Request
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import ClosedWindow, Windows
from specwhisper.types import (
    HOP_SAMPLES,
    AudioChunk,
    Candidates,
    Commit,
    Limits,
    Mode,
    Proposal,
    Resume,
    Timing,
    Window,
)

# Candidates in one pass that begins with the target's own: they are right far more often than a draft's.
MAX_RECALLED = 64


@dataclass(slots=True, eq=False)
class VerifierState:
    """What the target knows of a session, and what the draft's messages do to it."""

    id: str
    slot: int
    mode: Mode
    options: DecodingOptions
    limits: Limits
    recording: Recording
    windows: Windows
    resumed: Resume | None = None  # until its window is opened
    window: Window | None = None
    ledger: Ledger = field(default_factory=Ledger)
    log_probs: list[float] = field(default_factory=list)
    heard: Heard | None = None  # how the open window begins
    language_probs: Mapping[str, float] = field(default_factory=dict)  # until they are told
    proposals: dict[int, Proposal] = field(default_factory=dict)  # by position
    closed: ClosedWindow | None = None  # the last window
    encoding: Future[int] | None = None
    committing: Generator[Future[Any], None, None] | None = None  # a commit that waits for ...
    aligning: Future[Any] | None = None  # ... where the decoder looked
    encoded: tuple[int, int] | None = None  # first frame and frames of the audio in the slot
    language_of: tuple[int, int] | None = None  # the same of the next window, once its language is asked for
    encode_ns: int = 0
    detect_ns: int = 0  # time of the pass that detected the language, until it is reported
    candidates_received: int = 0  # number of the newest
    block_received_ns: int = 0  # when it came
    # For the next window, and when they came.
    early: list[tuple[Candidates, int]] = field(default_factory=list)
    next_window_id: int = 0
    may_go_alone: bool = False
    ready_ns: int = 0
    opened_ns: int = 0  # when the last window was
    arrivals: Arrivals = field(default_factory=Arrivals)
    commits_ns: list[int] = field(default_factory=list)  # when each committed token was told
    num_missed: int = 0  # passes it had something for and took no part in, since its last one
    is_finished: bool = False

    @property
    def open_window(self) -> Window:
        """The window that is open."""
        if self.window is None:
            raise RuntimeError(f"Session '{self.id}' has no open window.")
        return self.window

    @property
    def is_runnable(self) -> bool:
        """Whether a pass would append something now."""
        if self.encoding is not None or self.aligning is not None:
            return False
        if self.window is None:
            return self.detects_language
        return self.has_candidates or self.may_go_alone or self.mode.self_decodes

    @property
    def awaits_candidates(self) -> bool:
        """Whether it can do nothing before some come."""
        is_free = self.encoding is None and self.aligning is None
        return self.window is not None and is_free and not self.is_runnable

    @property
    def has_candidates(self) -> bool:
        """Whether a pass would verify something now."""
        return self.window is not None and self.ledger.num_pending > 0

    @property
    def next_candidates(self) -> Arrival | None:
        """When candidates will be there that are on their way; ``None`` if that cannot be told."""
        if self.window is None or not self.mode.drafts or self.has_candidates or self.aligning is not None:
            return None
        return self.arrivals.arrival(len(self.ledger.committed))

    @property
    def detects_language(self) -> bool:
        """Whether the first window is encoded, but its language is not known yet."""
        return (
            self.window is None
            and self.windows.language is None
            and self.encoded is not None
            and self.encoded == (self.windows.next_frame, self.ready_frames)
        )

    @property
    def ready_frames(self) -> int | None:
        """Frames of the next window; ``None`` while it cannot be opened, 0 at the end."""
        num_frames = self.windows.ready_frames(self.recording)
        if num_frames and self.language_of and self.language_of[0] == self.windows.next_frame:
            return self.language_of[1]  # what was heard for its language is what is decoded then
        return num_frames

    @property
    def can_advance(self) -> bool:
        """Whether an alignment or encoding is done, or the next window or the end has come."""
        if (awaited := self.aligning or self.encoding) is not None:
            return awaited.done()
        if self.window is not None or self.is_finished or self.detects_language:
            return False
        return self.ready_frames is not None

    def hear(self, chunk: AudioChunk) -> None:
        """Take in audio: no more than a session may have in memory, and none that begins too late."""
        window_start = self.windows.next_frame * HOP_SAMPLES
        needed_from = window_start if self.windows.is_live else max(0, window_start - CONTEXT_SAMPLES)
        is_first = not self.recording.received_samples
        if is_first and chunk.start_sample > needed_from:
            raise InvalidAudio(
                f"The audio leaves a gap: samples {needed_from} to {chunk.start_sample} are missing."
            )
        held_from = chunk.start_sample if is_first else self.recording.first_sample
        start = min(window_start, held_from + CONTEXT_SAMPLES)
        end = chunk.start_sample + len(chunk.pcm) // 2
        if end - start > self.limits.max_ahead_samples:
            raise InvalidAudio(
                f"Audio up to sample {end} runs more than {self.limits.max_ahead_samples} samples ahead of "
                f"the window at {start}: wait for the next window."
            )
        self.recording.append(chunk)
        self.windows.append_audio(chunk, self.recording.received_samples)
        if self.windows.is_live:  # silence is not kept for a window that may never come
            self.recording.discard_before(self.windows.next_frame * HOP_SAMPLES)

    def offer(self, block: Candidates, received_ns: int, now_ns: int) -> Commit | None:
        """Queue candidates for the next pass; give the answer at once if they are of no use."""
        is_decided = self.aligning is not None  # the window's last commit is on its way
        if self.window is None or is_decided or block.window_id != self.window.id:
            self._keep(block, received_ns)
            return None
        if not _is_about(block, self.window):
            return None  # the draft begins anew: it counts no block that it had sent before
        self.candidates_received = max(self.candidates_received, block.number)
        self.block_received_ns = received_ns
        was_runnable, correction = self.is_runnable, self.ledger.correction
        if not block.tokens and block.base == len(self.ledger.committed):
            self.may_go_alone = True
        else:
            offer = self.ledger.offer(block.base, block.known_committed, block.tokens)
            if self.ledger.correction > correction:  # there it parted, and begins anew when it hears of it
                correction = self.ledger.correction
                self.arrivals.restart(correction + 1, self.commits_ns[correction])
            if block.tokens and offer is not Offer.VOID:
                self.arrivals.observe(block.base + len(block.tokens), len(block.tokens), received_ns)
            if offer is not Offer.FRESH:
                return self.acknowledgement(now_ns)
            if self.options.acceptance is Acceptance.CLASSICAL:  # nobody else asks for them
                self.proposals.update(enumerate(block.proposals, start=block.base))
        if self.is_runnable and not was_runnable:
            self.ready_ns = received_ns
        return None

    def _keep(self, block: Candidates, received_ns: int) -> None:
        """Keep candidates for a window that is not open yet: the last ones, wherever they expect it."""
        if block.start_frame is not None and block.window_id == self.next_window_id:
            self.early.append((block, received_ns))
            del self.early[: -self.limits.max_ahead_tokens]

    def go_alone(self, now_ns: int) -> None:
        """Wait no longer, for one token; the draft hears of it. That it took so long was not the target's."""
        self.may_go_alone = True
        self.ready_ns = now_ns

    def take_early(self, now_ns: int) -> list[Commit]:
        """Queue what came for the open window before it was opened; give the answers that are due at once."""
        early, self.early = self.early, []
        answers = (self.offer(block, received_ns, now_ns) for block, received_ns in early)
        return [answer for answer in answers if answer is not None]

    def resume(self, resume: Resume, vocabulary: Vocabulary, num_mel_bins: int) -> None:
        """Continue a window that another target opened."""
        if self.windows.is_live:
            raise InvalidRequest(
                "A live session is not resumed in a window: open it with the position where it goes on."
            )
        window, committed = resume.window, resume.committed
        if self.window is not None or self.recording.received_samples:
            raise InvalidRequest(
                "A session can only be resumed before any audio: send it directly after the hello."
            )
        room = vocabulary.max_length - len(window.prompt)
        if not (vocabulary.start_of_transcript in window.prompt and 1 <= window.max_new_tokens <= room):
            raise InvalidRequest(
                f"A resumed window with a prompt of {len(window.prompt)} tokens and {window.max_new_tokens} "
                f"to generate does not fit this target's {vocabulary.max_length}."
            )
        if len(resume.log_probs) != len(committed):
            raise InvalidRequest(
                f"Resume has {len(committed)} committed tokens but {len(resume.log_probs)} log-probabilities."
            )
        if window.attempt >= len(self.options.temperatures):
            raise InvalidRequest(
                f"Window {window.id} is attempt {window.attempt}, but {len(self.options.temperatures)} "
                "temperatures are asked for: resume it with the options it was opened with."
            )
        if len(committed) == window.max_new_tokens or not vocabulary.ends.isdisjoint(committed):
            raise InvalidRequest(
                f"Window {window.id} is complete: resume a session with a window that is open."
            )
        self.resumed = resume
        self.windows.resume(window, resume.previous)
        if resume.log_mel_max is not None:
            self.recording.resume_log_mel_max(num_mel_bins, resume.log_mel_max)

    def begin_window(self, num_frames: int) -> Window:
        """Open the next window, or the one that is resumed."""
        resumed, self.resumed = self.resumed, None
        self.window = resumed.window if resumed else self.windows.open(num_frames)
        self.next_window_id = self.window.id + 1
        self.language_of = None
        self.ledger = Ledger(
            resumed.committed if resumed else (),
            reused=self.closed.reused if self.closed and self.mode.drafts else (),
            ending=self.closed.ending if self.closed and self.mode.drafts else (),
            max_pending=self.limits.max_ahead_tokens,
        )
        self.log_probs = list(resumed.log_probs) if resumed else []
        self.heard = None
        self.arrivals.open()
        self.commits_ns = [0] * len(self.ledger.committed)
        self.proposals = {}
        self.candidates_received = 0
        self.recording.discard_before(self.window.start_sample)
        return self.window

    def request(self, num_held: int, max_width: int) -> Request:
        """Tell what the session would feed: what its slot lacks beyond ``num_held``, then candidates."""
        if self.window is None:
            return Request(1, 0, self.num_missed)
        window, ledger = self.window, self.ledger
        room = window.max_new_tokens - len(ledger.committed) - 1  # the target's own token needs a place
        num_drafted = min(ledger.num_pending - ledger.num_reused, max_width)
        wanted = min(ledger.num_reused + num_drafted, max(max_width, MAX_RECALLED))
        return Request(
            num_needed=len(window.prompt) + len(ledger.committed) - num_held,
            num_candidates=min(wanted, room),
            num_missed=self.num_missed,
        )

    def row(self, num_held: int, num_candidates: int, vocabulary: Vocabulary) -> Row:
        """Put together what the session feeds, with the first ``num_candidates`` of its candidates."""
        if self.window is None:
            return Row(self.slot, [vocabulary.start_of_transcript], 0, (), timestamps=False, probe=0)
        window, ledger = self.window, self.ledger
        candidates = ledger.candidates(num_candidates)
        start = vocabulary.start_of_transcript
        begins = num_held == 0 and start in window.prompt
        return Row(
            slot=self.slot,
            tokens=[*window.prompt, *ledger.committed][num_held:] + candidates,
            num_candidates=len(candidates),
            generated=ledger.committed,
            timestamps=self.options.timestamps,
            max_initial_timestamp=max_initial_timestamp(self.options),
            sampling=window_sampling(window, self.options),
            acceptance=self.options.acceptance,
            acceptance_threshold=self.options.acceptance_threshold,
            proposals=self._drafted_proposals,
            probe=window.prompt.index(start) if begins else None,
        )

    @property
    def _drafted_proposals(self) -> dict[int, Proposal]:
        """What the draft's candidates were drawn from; what the target remembers was drawn from nothing."""
        drafted_from = len(self.ledger.committed) + self.ledger.num_reused
        return {position: drawn for position, drawn in self.proposals.items() if position >= drafted_from}

    def append(
        self,
        verdict: Verdict,
        scores: Scores,
        timing: Timing,
        *,
        num_verified: int,
        now_ns: int,
        attended_ms: Sequence[float] = (),
    ) -> Commit:
        """Commit what a pass has decided; a window that ends is closed."""
        window, base, num_tokens = self.open_window, len(self.ledger.committed), len(verdict.tokens)
        num_reused = min(num_verified, self.ledger.num_reused)
        correction = self.ledger.correction
        self.ledger.append(verdict.tokens)
        self.commits_ns += [now_ns] * num_tokens
        if self.mode.is_lock_step or self.ledger.correction > correction:
            self.arrivals.restart(len(self.ledger.committed), now_ns)
        self.log_probs += scores.log_probs[:num_tokens]
        self.may_go_alone = False
        self.encode_ns = 0
        self.ready_ns = now_ns
        commit = replace(
            self.acknowledgement(now_ns),
            base=base,
            tokens=verdict.tokens,
            log_probs=tuple(scores.log_probs[:num_tokens]),
            margins=tuple(scores.margins[:num_tokens]),
            num_verified=num_verified,
            num_accepted=verdict.num_accepted,
            num_reused=num_reused,
            num_self_decoded=int(num_verified == 0),
            is_final=verdict.is_final,
            timing=replace(timing, block_age_ns=self._block_age_ns(now_ns)),
        )
        if scores.heard is not None:
            self.heard = scores.heard
            commit = replace(
                commit,
                no_speech_prob=self.heard.no_speech_prob,
                language_probs=self.language_probs,
                timing=replace(commit.timing, detect_ns=self.detect_ns),
            )
            self.language_probs, self.detect_ns = {}, 0
        if verdict.is_final:
            no_speech_prob = self.heard.no_speech_prob if self.heard else None
            self.closed = self.windows.close(
                window, self.ledger.committed, self.log_probs, no_speech_prob, attended_ms
            )
            commit = replace(commit, outcome=self.closed.outcome, step=self.closed.step)
            self.window = None
        return commit

    def detect_language(self, heard: Heard, forward_ns: int = 0) -> None:
        """Take the likeliest language for the session's own; the pass that found it took ``forward_ns``."""
        self.language_probs, self.language_of = heard.language_probs, self.encoded
        self.detect_ns = forward_ns
        self.windows.language = max(heard.language_probs, key=lambda code: heard.language_probs[code])

    def acknowledgement(self, now_ns: int) -> Commit:
        """Make a commit of nothing: it tells the draft where the target stands."""
        end = len(self.ledger.committed)
        return Commit(
            window_id=self.open_window.id,
            base=end,
            tokens=(),
            candidates_received=self.candidates_received,
            held=self.ledger.held,
            credit=end + self.limits.max_ahead_tokens,
            timing=Timing(block_age_ns=self._block_age_ns(now_ns)),
        )

    def _block_age_ns(self, now_ns: int) -> int:
        """Tell how long the newest block of the window has been here; 0 without one."""
        return now_ns - self.block_received_ns if self.candidates_received else 0


def _is_about(block: Candidates, window: Window) -> bool:
    """Tell whether a block is about a window as it is, not as a draft had expected it."""
    return block.start_frame is None or (block.start_frame == window.start_frame and not window.attempt)
