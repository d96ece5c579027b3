"""A session on the target: its slot, its audio, and the phase it is in."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from specwhisper.audio.recording import Recording
from specwhisper.engine.encodings import AudioSpan
from specwhisper.engine.phases import Derived, Detection, Phase
from specwhisper.engine.target_window import TargetWindow
from specwhisper.errors import InvalidAudio, InvalidRequest
from specwhisper.live import LivePosition
from specwhisper.model.choosing import ProbeResult, Row, Scores
from specwhisper.options import DecodingOptions
from specwhisper.speculation.acceptance import Verdict
from specwhisper.speculation.hints.given import LiveHint
from specwhisper.speculation.ledger import Ledger, SharedHints
from specwhisper.speculation.scheduling import Request
from specwhisper.speculation.worthwhile import MAX_REACH
from specwhisper.transcription.live.windows import LiveWindows
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
    Resume,
    TimedHint,
    Timing,
)


@dataclass(slots=True, eq=False)
class VerifierState:
    """The state of a session: messages and forward passes change it.

    A window of a session goes through the phases from :attr:`Phase.AWAIT_WINDOW` to :attr:`Phase.ALIGN`. Its
    language is detected before the first window opens, unless it is named; alignment is for word times
    only.

    Attributes
    ----------
    resumed : the window to resume, until it is opened.
    early_blocks : blocks for the next window, and when they arrived.
    open_window, closed : the open window, and the result of the last one.
    opened_ns : when the last window was opened.
    encoding : of the slot, while it is queued or running; ``encoded`` is the audio in the slot.
    encode_ns : time of the last encoding, until it is reported.
    detection : the result, until it is reported.
    commit, aligning : a commit that waits for an alignment on the executor.
    ready_ns : since when the session is runnable, or waits for candidates.
    hints : those that all windows share, and how often the draft is right.
    num_missed : forward passes in which it was runnable and took no part, since its last one.
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
    # Windows.
    open_window: TargetWindow | None = None
    closed: ClosedWindow | None = None
    next_window_id: int = 0
    opened_ns: int = 0
    # The audio in the slot, and its language.
    encoding: Future[int] | None = None
    encoded: AudioSpan | None = None
    encode_ns: int = 0
    detection: Detection | None = None
    # A commit between two forward passes.
    commit: Generator[Future[Any], None, None] | None = None
    aligning: Future[Any] | None = None
    # Scheduling.
    ready_ns: int = 0
    num_missed: int = 0
    is_finished: bool = False
    _derived: Derived | None = None  # of the fields above; every method that changes one sets it to None

    @property
    def derived(self) -> Derived:
        """The phase and what the session can do.

        The engine reads it many times between two changes.
        """
        if self._derived is None:
            phase = self._find_phase()
            self._derived = Derived(
                phase,
                self._is_runnable_in(phase),
                phase is Phase.AWAIT_WINDOW and self.ready_frames is not None,
            )
        return self._derived

    @property
    def phase(self) -> Phase:
        """The current phase."""
        return self.derived.phase

    def _find_phase(self) -> Phase:
        if self.aligning is not None:
            return Phase.ALIGN
        if self.encoding is not None:
            return Phase.ENCODE
        if self.open_window is not None:
            return Phase.DECODE
        if self.is_finished:
            return Phase.FINISHED
        # The language may be of the next window's audio, which may change until it is opened.
        if self.encoded is not None and self.windows.detects_in(self.encoded, self.ready_frames):
            return Phase.DETECT_LANGUAGE
        return Phase.AWAIT_WINDOW

    @property
    def is_runnable(self) -> bool:
        """Whether the session can take part in a forward pass."""
        return self.derived.is_runnable

    @property
    def awaits_candidates(self) -> bool:
        """Whether the session can do nothing until candidates arrive."""
        derived = self.derived
        return derived.phase is Phase.DECODE and not derived.is_runnable

    def _is_runnable_in(self, phase: Phase) -> bool:
        if phase is not Phase.DECODE or self.open_window is None:
            return phase is Phase.DETECT_LANGUAGE
        return (
            self.mode.self_decodes
            or self.open_window.ledger.has_candidates
            or self.open_window.may_self_decode
        )

    @property
    def can_advance(self) -> bool:
        """Whether the session can leave its phase without a forward pass."""
        work = self.aligning or self.encoding
        return self.derived.can_open if work is None else work.done()

    @property
    def ready_frames(self) -> int | None:
        """Frames of the next window; ``None`` while it cannot be opened, 0 at the end."""
        return self.windows.ready_frames(self.recording)

    def append_audio(self, chunk: AudioChunk) -> None:
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
        self._derived = None
        self.recording.append(chunk)
        self.windows.append_audio(chunk, self.recording.received_samples)
        if self.windows.is_live:  # silence between utterances is dropped
            self.recording.discard_before(self.windows.next_frame * HOP_SAMPLES)

    def offer(self, block: Candidates, received_ns: int, now_ns: int) -> Commit | None:
        """Queue candidates for a forward pass; return an answer that is due at once."""
        opened = self.open_window
        if opened is None or self.aligning is not None or block.window_id != opened.window.id:
            self._keep_early(block, received_ns)
            return None
        if not opened.matches(block):
            return None  # unanswered: the draft no longer counts blocks of a wrong prediction
        was_runnable, self._derived = self.is_runnable, None
        if not opened.offer(block, received_ns):
            return opened.acknowledgement(now_ns)
        if self.is_runnable and not was_runnable:
            self.ready_ns = received_ns
        return None

    def hint(self, hint: TimedHint, live_hint: Callable[[], LiveHint], received_ns: int) -> None:
        """Take a text for the audio from a time on.

        Parameters
        ----------
        live_hint : returns the hint that holds these texts, before the first of them.
        """
        was_runnable, opened = self.is_runnable, self.open_window
        live = self.hints.live
        if live is None:
            live = self.hints.live = live_hint()
            if opened is not None:
                live.open_window(0, opened.window.start_sample)
                for token in opened.ledger.committed[len(opened.window.prefix) :]:
                    live.follow(token)
        live.replace(hint.start_sample, hint.text)
        if opened is not None and self.aligning is None:  # else they are verified, but not committed
            opened.candidates = None
        self._derived = None
        if self.is_runnable and not was_runnable:
            self.ready_ns = received_ns

    def _keep_early(self, block: Candidates, received_ns: int) -> None:
        """Keep the newest blocks for the next window, wherever the draft predicts it."""
        if block.start_frame is not None and block.window_id == self.next_window_id:
            self.early_blocks.append((block, received_ns))
            del self.early_blocks[: -self.limits.max_ahead_tokens]

    def offer_early(self, now_ns: int) -> list[Commit]:
        """Offer the blocks that arrived early; return answers that are due at once."""
        early, self.early_blocks = self.early_blocks, []
        answers = (self.offer(block, received_ns, now_ns) for block, received_ns in early)
        return [answer for answer in answers if answer is not None]

    def stop_waiting(self, now_ns: int) -> None:
        """Let the target decode one token by itself, because no candidates arrived.

        The wait does not count as response time of the target.
        """
        if self.open_window is not None:
            self.open_window.may_self_decode = True
            self.ready_ns = now_ns
            self._derived = None

    def resume(self, resume: Resume, vocabulary: Vocabulary, num_mel_bins: int) -> None:
        """Continue a window that another target opened.

        Raises
        ------
        InvalidRequest : the session has begun, or the window is not open or does not fit this target.
        """
        if self.windows.is_live:
            raise InvalidRequest("Live audio is not resumed in a window: send where it continues.")
        self._check_has_not_begun()
        check_resume(resume, vocabulary, self.options)
        self._derived = None
        self.resumed = resume
        self.windows.resume(resume.window, resume.previous)
        if self.options.multilingual and not resume.committed:
            self.windows.language = None  # detected again, since its probabilities come with the first tokens
        if resume.log_mel_max is not None:
            self.recording.resume_log_mel_max(num_mel_bins, resume.log_mel_max)

    def begin_at(self, position: LivePosition) -> None:
        """Continue live audio of which another target wrote the final text."""
        if not isinstance(self.windows, LiveWindows):
            raise InvalidRequest("A position is for live audio: resume a recording in a window.")
        self._check_has_not_begun()
        self._derived = None
        self.windows.begin_at(position)

    def _check_has_not_begun(self) -> None:
        if self.open_window is not None or self.recording.received_samples:
            raise InvalidRequest("A session is only resumed before any audio: directly after the hello.")

    def begin_encoding(self, span: AudioSpan | None, encoding: Future[int]) -> None:
        """Wait for an encoding, or for other work; it returns its time in ns."""
        self.encoded, self.encoding, self._derived = span, encoding, None

    def end_encoding(self, now_ns: int) -> None:
        """Take the encoding that is done; raise its error."""
        if self.encoding is not None:
            self.encode_ns = self.encoding.result()
            self.encoding, self.ready_ns, self._derived = None, now_ns, None

    def wait_for(self, aligning: Future[Any] | None) -> None:
        """Wait for an alignment of the current commit, or no longer."""
        self.aligning, self._derived = aligning, None

    def reconsider(self) -> None:
        """Find out again what the session can do; its windows or costs changed."""
        self._derived = None

    def finish(self) -> None:
        """Note that no window follows."""
        self.is_finished, self._derived = True, None

    def begin_window(self, num_frames: int, now_ns: int) -> TargetWindow:
        """Open the next window, or the one that is resumed."""
        resumed, self.resumed = self.resumed, None
        window = resumed.window if resumed else self.windows.open(num_frames)
        # Of a recording, target-only reuses nothing: it is the baseline.
        last = self.closed if self.mode.drafts or self.windows.is_live else None
        if self.closed is None and window.start_sample and (resumed or window.prefix):
            self.hints.open_later(resumed.previous if resumed else (), window.start_sample)
        else:
            self.hints.open_window(self.closed.num_kept if self.closed else 0, window.start_sample)
        ledger = Ledger(
            resumed.committed if resumed else (),
            prefix=window.prefix,
            opening=last.opening if last else (),
            ending=last.ending if last else (),
            shared=self.hints,
            max_pending=self.limits.max_ahead_tokens,
        )
        self.open_window = TargetWindow(
            window,
            ledger,
            self.limits.max_ahead_tokens,
            log_probs=list(resumed.log_probs) if resumed else [0.0] * len(window.prefix),
        )
        self.next_window_id = window.id + 1
        self.opened_ns = now_ns
        self._derived = None
        if not self.windows.is_live:  # whose next window may begin with the same audio
            self.recording.discard_before(window.start_sample)
        return self.open_window

    def request(self, slot_length: int, max_width: int) -> Request:
        """Return the tokens to append; the slot has ``slot_length`` of them."""
        if self.open_window is None:
            return Request(1, 0, self.num_missed)
        if self.windows.is_live:  # its draft sends a whole text at once
            max_width = max(max_width, MAX_REACH)
        return self.open_window.request(slot_length, max_width, self.num_missed)

    def row(self, slot_length: int, num_candidates: int, vocabulary: Vocabulary) -> Row:
        """Return the next forward pass's row, with the first ``num_candidates``."""
        if self.open_window is None:  # for the language
            return Row(self.slot, [vocabulary.start_of_transcript], 0, (), timestamps=False, probe=0)
        return self.open_window.row(self.slot, slot_length, num_candidates, vocabulary, self.options)

    def detect_language(self, probe_result: ProbeResult, forward_ns: int = 0) -> None:
        """Take a detected language; ``forward_ns`` is the time of the forward pass."""
        probs = self.windows.detected(probe_result.language_probs)
        forward_ns += self.detection.forward_ns if self.detection is not None else 0
        self.detection, self._derived = Detection(probs, forward_ns), None

    def append(
        self,
        verdict: Verdict,
        scores: Scores,
        timing: Timing,
        num_verified: int,
        now_ns: int,
    ) -> Commit:
        """Append the tokens of a forward pass; return the commit.

        A window that ends is closed.
        """
        opened = self.open_window
        if opened is None:
            raise RuntimeError(f"Session '{self.id}' has no open window.")
        commit = opened.append(verdict, scores, timing, num_verified=num_verified)
        self.encode_ns = 0
        self.ready_ns = now_ns
        self._derived = None
        if scores.probe_result is not None:
            commit = replace(commit, no_speech_prob=scores.probe_result.no_speech_prob)
            if self.detection is not None:
                commit = replace(
                    commit,
                    language_probs=self.detection.language_probs,
                    timing=replace(commit.timing, detect_ns=self.detection.forward_ns),
                )
                self.detection = None
        if verdict.is_final:
            no_speech_prob = opened.probe_result.no_speech_prob if opened.probe_result else None
            self.closed = self.windows.close(
                opened.window, opened.ledger.committed, opened.log_probs, no_speech_prob
            )
            commit = replace(commit, outcome=self.closed.outcome, piece=self.closed.piece)
            self.open_window = None
        return commit
