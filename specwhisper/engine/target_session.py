"""A session on the target: everything that the engine knows of it.

The engine (:mod:`specwhisper.engine.verifier`) changes it by messages, forward passes, and what the executors
have done. After each change it lets the session find its phase, the first row that applies:

===============  ====================================================  ==================================
Phase            Applies while                                         Ended by
===============  ====================================================  ==================================
ALIGN            ``aligning`` is set                                   the executor
ENCODE           ``encoding`` is set                                   the executor
DECODE           ``window`` is set                                     a final token in a forward pass
FINISHED         ``is_finished``
DETECT_LANGUAGE  no language yet, the next window's audio is encoded   a forward pass
AWAIT_WINDOW     otherwise                                             audio for a window, or its end
===============  ====================================================  ==================================

A window goes through the phases from AWAIT_WINDOW to ALIGN. The language is detected before the first window
opens, unless it is named; alignment is for word times only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import NamedTuple

from specwhisper.audio.recording import Recording
from specwhisper.engine.encodings import AudioSpan
from specwhisper.errors import InvalidAudio, InvalidRequest
from specwhisper.live import LivePosition
from specwhisper.model.choosing import ProbeResult, Row, Scores
from specwhisper.model.rules import max_initial_timestamp
from specwhisper.model.sampling import window_sampling
from specwhisper.options import DecodingOptions
from specwhisper.speculation.acceptance import Verdict
from specwhisper.speculation.hints import MAX_REACH, LiveHint
from specwhisper.speculation.ledger import CandidateSource, Ledger, Pending, SharedHints
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.transcription.resume_point import check_resume
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import ClosedWindow, Windows
from specwhisper.types import (
    CONTEXT_SAMPLES,
    HOP_SAMPLES,
    AudioChunk,
    Candidates,
    Commit,
    Limits,
    Mode,
    Outcome,
    Resume,
    TimedHint,
    Timing,
    Window,
    WordAlignment,
)


class Phase(Enum):
    """The next action of a session."""

    AWAIT_WINDOW = auto()  # opens the next window, or finishes, when its audio has arrived
    ENCODE = auto()  # on the executor: a window, or audio for its language
    DETECT_LANGUAGE = auto()  # takes part in a forward pass
    DECODE = auto()  # takes part in forward passes with candidates, or by itself
    ALIGN = auto()  # on the executor: completes a commit
    FINISHED = auto()


class LastCommit(NamedTuple):
    """The commit that completes a window, before it is sent.

    Attributes
    ----------
    words, timed : the window's words by cross-attention alone, and the same as the session wants them.
    """

    window: Window
    commit: Commit
    words: tuple[WordAlignment, ...] = ()
    timed: tuple[WordAlignment, ...] = ()


@dataclass(slots=True, eq=False)
class TargetSession:
    """The state of a session.

    Attributes
    ----------
    hints : the texts that all windows share, and how often the draft is right.
    early_blocks : blocks for the next window, and when they arrived.
    window : the open window; what follows about it is kept until the next one is opened.
    ledger, log_probs : its candidates and committed tokens, and these tokens' log-probabilities.
    no_speech_prob : probability of silence at its start, once it is known.
    newest_block, newest_block_ns : number of the draft's newest block, and when it arrived; 0 without one.
    candidates : for the next forward pass; ``None`` while they are not chosen.
    may_self_decode : whether the target may append one token without candidates, in a mode that waits for
        them.
    encoding : the slot's, while it is queued or running; ``encoded`` is the audio in the slot.
    encode_ns : time of the last encoding, until it is reported.
    language_probs : what the last detection found, until its window is opened.
    detect_ns : time of those forward passes, until the window's first commit.
    aligning : the last commit of a window, which waits for an alignment on the executor.
    ready_ns : since when the session is runnable, or waits for candidates.
    num_missed : forward passes in which it was runnable and took no part, since its last one.
    can_open : whether it waits for a window, and its audio, or the end, has arrived.
    """

    id: str
    slot: int
    mode: Mode
    options: DecodingOptions
    limits: Limits
    recording: Recording
    windows: Windows
    hints: SharedHints = field(default_factory=SharedHints)
    # Messages that wait for the next window.
    resumed: Resume | None = None
    early_blocks: list[tuple[Candidates, int]] = field(default_factory=list)
    # The open window.
    window: Window | None = None
    ledger: Ledger = field(default_factory=Ledger)
    log_probs: list[float] = field(default_factory=list)
    no_speech_prob: float | None = None
    newest_block: int = 0
    newest_block_ns: int = 0
    candidates: list[Pending] | None = None
    may_self_decode: bool = False
    # The last window.
    closed: ClosedWindow | None = None
    next_window_id: int = 0
    opened_ns: int = 0
    # The audio in the slot, and its language.
    encoding: Future[int] | None = None
    encoded: AudioSpan | None = None
    encode_ns: int = 0
    language_probs: Mapping[str, float] = field(default_factory=dict)
    detect_ns: int = 0
    aligning: Future[LastCommit] | None = None
    # Scheduling.
    ready_ns: int = 0
    num_missed: int = 0
    is_finished: bool = False
    # Found by the engine after each change, because it reads them many times between two changes.
    phase: Phase = Phase.AWAIT_WINDOW
    is_runnable: bool = False
    can_open: bool = False

    def update_phase(self) -> None:
        """Find the phase, and what the session can do in it."""
        self.phase = phase = self._find_phase()
        self.is_runnable = phase is Phase.DETECT_LANGUAGE or (
            phase is Phase.DECODE
            and (self.mode.self_decodes or self.ledger.has_candidates or self.may_self_decode)
        )
        self.can_open = phase is Phase.AWAIT_WINDOW and self.ready_frames is not None

    def _find_phase(self) -> Phase:
        if self.aligning is not None:
            return Phase.ALIGN
        if self.encoding is not None:
            return Phase.ENCODE
        if self.window is not None:
            return Phase.DECODE
        if self.is_finished:
            return Phase.FINISHED
        # The language may be of the next window's audio, which may change until it is opened.
        if self.encoded is not None and self.windows.detects_in(self.encoded, self.ready_frames):
            return Phase.DETECT_LANGUAGE
        return Phase.AWAIT_WINDOW

    @property
    def awaits_candidates(self) -> bool:
        return self.phase is Phase.DECODE and not self.is_runnable

    @property
    def ready_frames(self) -> int | None:
        """Frames of the next window; ``None`` while it cannot be opened, 0 at the end."""
        return self.windows.ready_frames(self.recording)

    def add_audio(self, chunk: AudioChunk) -> None:
        """Append audio.

        Raises
        ------
        InvalidAudio : it leaves a gap.
        InvalidRequest : it comes further ahead of the open window than the limit.
        """
        window_start = self.windows.next_frame * HOP_SAMPLES
        needed_from = window_start if self.windows.is_live else max(0, window_start - CONTEXT_SAMPLES)
        is_first = not self.recording.received_samples
        if is_first and chunk.start_sample > needed_from:
            raise InvalidAudio(f"The audio leaves a gap from sample {needed_from} to {chunk.start_sample}.")
        if self.aligning is None:  # words may move the next window back
            self.recording.discard_before(window_start)
        held_from = chunk.start_sample if is_first else self.recording.first_sample
        start = min(window_start, held_from + CONTEXT_SAMPLES)
        end = chunk.start_sample + len(chunk.pcm) // 2
        if end - start > self.limits.max_ahead_samples:
            raise InvalidRequest(
                f"The sender is {end - start - self.limits.max_ahead_samples} samples further ahead of the "
                f"window at sample {start} than this target allows: it must wait for the next window."
            )
        self.recording.append(chunk)
        self.windows.append_audio(chunk, self.recording.received_samples)
        if self.windows.is_live:  # silence between utterances is dropped
            self.recording.discard_before(self.windows.next_frame * HOP_SAMPLES)

    def offer_block(self, block: Candidates, received_ns: int, now_ns: int) -> Commit | None:
        """Take candidates; return an empty commit, the window's state, for a block that is not used."""
        window, ledger = self.window, self.ledger
        if window is None or block.window_id != window.id:
            # The newest blocks for the next window are kept, wherever the draft predicts it.
            if block.start_frame is not None and block.window_id == self.next_window_id:
                self.early_blocks.append((block, received_ns))
                del self.early_blocks[: -self.limits.max_ahead_tokens]
            return None
        if block.start_frame is not None and (block.start_frame != window.start_frame or window.attempt):
            return None  # unanswered: the draft no longer counts blocks of a wrong prediction
        self.newest_block, self.newest_block_ns = max(self.newest_block, block.block_number), received_ns
        self.candidates = None
        if not block.tokens and block.base == len(ledger.committed):
            self.may_self_decode = True
            return None
        if ledger.add_candidates(block.base, block.known_committed, block.tokens):
            return None
        return Commit(
            window_id=window.id,
            base=len(ledger.committed),
            tokens=(),
            answered_block=self.newest_block,
            held=ledger.held,
            credit=len(ledger.committed) + self.limits.max_ahead_tokens,
            timing=Timing(block_age_ns=self.block_age_ns(now_ns)),
        )

    def block_age_ns(self, now_ns: int) -> int:
        """Return how long the newest block has been here; 0 without one."""
        return now_ns - self.newest_block_ns if self.newest_block else 0

    def add_timed_hint(self, hint: TimedHint, new_hint: Callable[[], LiveHint]) -> None:
        """Take a text for the audio that begins at a given time.

        Parameters
        ----------
        new_hint : returns the hint that holds these texts, before the first of them.
        """
        live = self.hints.live
        if live is None:
            live = self.hints.live = new_hint()
            if self.window is not None:
                live.open_window(0, self.window.start_sample)
                for token in self.ledger.committed[len(self.window.prefix) :]:
                    live.follow(token)
        live.replace(hint.start_sample, hint.text)
        self.candidates = None

    def resume_window(self, resume: Resume, vocabulary: Vocabulary, num_mel_bins: int) -> None:
        """Continue a window that another target opened, if it fits and the session has not begun."""
        if self.windows.is_live:
            raise InvalidRequest("Live audio is not resumed in a window: send where it continues.")
        self._check_has_not_begun()
        check_resume(resume, vocabulary, self.options)
        self.resumed = resume
        self.windows.resume(resume.window, resume.previous)
        if resume.log_mel_max is not None:
            self.recording.resume_log_mel_max(num_mel_bins, resume.log_mel_max)

    def resume_live(self, position: LivePosition) -> None:
        """Continue live audio whose final text so far another target wrote."""
        if not isinstance(self.windows, LiveWindows):
            raise InvalidRequest("A position is for live audio: resume a recording in a window.")
        self._check_has_not_begun()
        self.windows.begin_at(position)

    def _check_has_not_begun(self) -> None:
        if self.window is not None or self.recording.received_samples:
            raise InvalidRequest("A session is only resumed before any audio: directly after the hello.")

    def add_language(self, probe_result: ProbeResult, forward_ns: int = 0) -> None:
        """Take a detected language; ``forward_ns`` is the time of the forward pass."""
        self.language_probs = self.windows.detected(probe_result.language_probs)
        self.detect_ns += forward_ns

    def begin_window(self, num_frames: int, now_ns: int) -> Window:
        """Open the next window, or the one that is resumed."""
        resumed, self.resumed = self.resumed, None
        window = resumed.window if resumed else self.windows.open(num_frames)
        # In a recording, target-only reuses nothing: it is the baseline.
        last = self.closed if self.mode.drafts or self.windows.is_live else None
        if self.closed is None and window.start_sample and (resumed or window.prefix):
            self.hints.open_later(resumed.previous if resumed else (), window.start_sample)
        else:
            self.hints.open_window(self.closed.num_kept if self.closed else 0, window.start_sample)
        self.ledger = Ledger(
            resumed.committed if resumed else (),
            prefix=window.prefix,
            opening=last.opening if last else (),
            shared=self.hints,
            max_pending=self.limits.max_ahead_tokens,
        )
        self.window, self.next_window_id, self.opened_ns = window, window.id + 1, now_ns
        self.log_probs = list(resumed.log_probs) if resumed else [0.0] * len(window.prefix)
        self.no_speech_prob = self.candidates = None
        self.newest_block = self.newest_block_ns = 0
        self.may_self_decode = False
        if not self.windows.is_live:  # whose next window may begin with the same audio
            self.recording.discard_before(window.start_sample)
        return window

    def next_row(self, slot_length: int, max_width: int, vocabulary: Vocabulary) -> Row:
        """Return the session's part of the next forward pass, with all candidates that it would verify.

        Parameters
        ----------
        slot_length : tokens in the slot.
        max_width : most candidates of the draft.
        """
        window, committed, start = self.window, self.ledger.committed, vocabulary.start_of_transcript
        if window is None:  # for the language
            return Row(self.slot, [start], 0, (), timestamps=False, probe=0)
        if self.candidates is None:
            if self.windows.is_live:  # its draft sends a whole text at once
                max_width = max(max_width, MAX_REACH)
            room = window.max_new_tokens - len(committed) - 1  # one is the target's own
            self.candidates = self.ledger.next_candidates(max_width)[:room]
        prompt = window.prompt
        if slot_length < len(prompt):
            missing = [*prompt[slot_length:], *committed]
        else:
            missing = committed[slot_length - len(prompt) :]
        return Row(
            slot=self.slot,
            tokens=missing + [token for token, _ in self.candidates],
            num_candidates=len(self.candidates),
            generated=committed,
            timestamps=self.options.timestamps,
            max_initial_timestamp=max_initial_timestamp(self.options),
            sampling=window_sampling(window, self.options),
            acceptance_threshold=self.options.acceptance_threshold,
            probe=prompt.index(start) if slot_length == 0 and start in prompt else None,
        )

    def commit_tokens(
        self, verdict: Verdict, scores: Scores, num_verified: int, timing: Timing, now_ns: int
    ) -> Commit:
        """Commit a forward pass's tokens, and close a window that ends; return the message."""
        window, ledger, probe_result = self.window, self.ledger, scores.probe_result
        if window is None:
            raise RuntimeError(f"Session '{self.id}' has no open window.")
        base, num_tokens = len(ledger.committed), len(verdict.tokens)
        log_probs = scores.log_probs[:num_tokens]
        verified, self.candidates = (self.candidates or [])[:num_verified], None
        sources = [source for _, source in verified]
        num_drafted = sources.count(CandidateSource.DRAFT)
        ledger.extend_committed(verdict.tokens, verified)
        self.log_probs += log_probs
        self.may_self_decode, self.encode_ns, self.ready_ns = False, 0, now_ns
        if probe_result is not None:
            self.no_speech_prob = probe_result.no_speech_prob
            timing, self.detect_ns = replace(timing, detect_ns=self.detect_ns), 0
        closed = None
        if verdict.is_final:
            closed = self.windows.close(window, ledger.committed, self.log_probs, self.no_speech_prob)
            self.closed, self.window = closed, None
        return Commit(
            window_id=window.id,
            base=base,
            tokens=verdict.tokens,
            log_probs=tuple(log_probs),
            margins=tuple(scores.margins[:num_tokens]),
            num_verified=len(verified),
            num_accepted=verdict.num_accepted,
            num_hinted=len(sources) - num_drafted,
            num_hinted_first=sources.index(CandidateSource.DRAFT) if num_drafted else len(sources),
            num_self_decoded=int(not verified),
            answered_block=self.newest_block,
            held=ledger.held,
            credit=base + num_tokens + self.limits.max_ahead_tokens,
            is_final=verdict.is_final,
            outcome=closed.outcome if closed else Outcome.KEPT,
            piece=closed.piece if closed else None,
            no_speech_prob=probe_result.no_speech_prob if probe_result else None,
            timing=timing,
        )

    def words_span(self, window: Window) -> range:
        """Return the tokens of a window that has just closed whose words are requested."""
        closed = self.closed
        if closed is None or closed.outcome is not Outcome.KEPT or not self.options.word_timestamps:
            return range(0)
        if closed.piece is not None:
            return range(len(window.prefix), len(self.ledger.committed))
        return range(sum(len(segment.tokens) for segment in closed.segments))

    def review_window(self, last: LastCommit) -> Commit:
        """Return a window's last commit with its words, which may decide what is kept of the window."""
        window, commit, words, timed = last
        if self.closed is not None and self.windows.reviews and commit.outcome is Outcome.KEPT:
            tokens, log_probs = self.ledger.committed, self.log_probs
            self.closed = self.windows.review(self.closed, window, tokens, log_probs, words)
            end = self.closed.num_transcribed
            commit = replace(commit, num_transcribed=end)
            timed = tuple(word for word in timed if end is None or word.base < end)
        return replace(commit, words=timed) if timed else commit
