"""One transcription on the target: its slot, its audio and the window that is open."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from time import perf_counter_ns

from specwhisper.audio.recording import CONTEXT_SAMPLES, Recording
from specwhisper.errors import InvalidAudio, InvalidRequest, UnsupportedOption
from specwhisper.speculation.acceptance import Verdict
from specwhisper.speculation.ledger import Ledger
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.transcription.windows import SequentialWindows
from specwhisper.types import (
    HOP_SAMPLES,
    AudioChunk,
    Candidates,
    Commit,
    Limits,
    Mode,
    Resume,
    Timing,
    Window,
)
from specwhisper.whisper.model import Row, Scores


@dataclass(slots=True, eq=False)
class VerifierSession:
    """What the target knows of a session, and what the draft's messages do to it."""

    id: str
    slot: int
    mode: Mode
    timestamps: bool
    limits: Limits
    recording: Recording
    windows: SequentialWindows
    resumed: Resume | None = None  # until its window is opened
    window: Window | None = None
    ledger: Ledger = field(default_factory=Ledger)
    encoding: Future[int] | None = None
    encode_ns: int = 0
    candidates_received: int = 0
    may_go_alone: bool = False
    ready_ns: int = 0
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
        if self.window is None or self.encoding is not None:
            return False
        return bool(self.ledger.pending) or self.may_go_alone or self.mode.self_decodes

    @property
    def can_advance(self) -> bool:
        """Whether an encoding is done, or the next window or the end has come."""
        if self.encoding is not None:
            return self.encoding.done()
        if self.window is not None or self.is_finished:
            return False
        return self.recording.window_is_ready(self.windows.next_frame)

    def hear(self, chunk: AudioChunk) -> None:
        """Take in audio: no more than a session may have in memory, and none that begins too late."""
        window_start = self.windows.next_frame * HOP_SAMPLES
        needed_from = max(0, window_start - CONTEXT_SAMPLES)
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

    def offer(self, block: Candidates) -> Commit | None:
        """Queue candidates for the next pass; give the answer at once if they are of no use."""
        if self.window is None or block.window_id != self.window.id:
            return None
        self.candidates_received += 1
        was_runnable = self.is_runnable
        if not block.tokens and block.base == len(self.ledger.committed):
            self.may_go_alone = True
        elif not self.ledger.offer(block.base, block.known_committed, block.tokens):
            return self.acknowledgement()
        if self.is_runnable and not was_runnable:
            self.ready_ns = perf_counter_ns()
        return None

    def resume(self, resume: Resume, vocabulary: Vocabulary, num_mel_bins: int) -> None:
        """Continue a window that another target opened."""
        window, committed = resume.window, resume.committed
        if self.window is not None or self.recording.received_samples:
            raise InvalidRequest(
                "A session can only be resumed before any audio: send it directly after the hello."
            )
        room = vocabulary.max_length - len(window.prompt)
        if not (window.prompt and 1 <= window.max_new_tokens <= room):
            raise InvalidRequest(
                f"A resumed window with a prompt of {len(window.prompt)} tokens and {window.max_new_tokens} "
                f"to generate does not fit this target's {vocabulary.max_length}."
            )
        if window.temperature > 0:
            raise UnsupportedOption("This target only decodes greedily: resume a window of temperature 0.")
        if len(committed) == window.max_new_tokens or vocabulary.end_of_text in committed:
            raise InvalidRequest(
                f"Window {window.id} is complete: resume a session with a window that is open."
            )
        self.resumed = resume
        self.windows.resume(window)
        if resume.log_mel_ceiling is not None:
            self.recording.resume_ceiling(num_mel_bins, resume.log_mel_ceiling)

    def begin_window(self, num_frames: int) -> Window:
        """Open the next window, or the one that is resumed."""
        resumed, self.resumed = self.resumed, None
        self.window = resumed.window if resumed else self.windows.open(num_frames)
        self.ledger = Ledger(resumed.committed if resumed else (), max_pending=self.limits.max_ahead_tokens)
        self.candidates_received = 0
        self.recording.discard_before(self.window.start_sample)
        return self.window

    def row(self, num_held: int, max_width: int) -> Row:
        """Put together what the session feeds: what its slot lacks beyond ``num_held``, then candidates."""
        window, ledger = self.open_window, self.ledger
        room = window.max_new_tokens - len(ledger.committed) - 1  # the target's own token needs a place
        candidates = ledger.pending[: min(max_width, room)]
        return Row(
            slot=self.slot,
            tokens=[*window.prompt, *ledger.committed][num_held:] + candidates,
            num_candidates=len(candidates),
            generated=ledger.committed,
            timestamps=self.timestamps,
        )

    def append(self, verdict: Verdict, scores: Scores, timing: Timing, *, num_verified: int) -> Commit:
        """Commit what a pass has decided; a window that ends is closed."""
        window, base, num_tokens = self.open_window, len(self.ledger.committed), len(verdict.tokens)
        self.ledger.append(verdict.tokens)
        self.may_go_alone = False
        self.encode_ns = 0
        self.ready_ns = perf_counter_ns()
        commit = replace(
            self.acknowledgement(),
            base=base,
            tokens=verdict.tokens,
            log_probs=tuple(scores.log_probs[:num_tokens]),
            margins=tuple(scores.margins[:num_tokens]),
            num_verified=num_verified,
            num_accepted=verdict.num_accepted,
            num_self_decoded=int(num_verified == 0),
            is_final=verdict.is_final,
            timing=timing,
        )
        if verdict.is_final:
            self.windows.close(window, self.ledger.committed)
            self.window = None
        return commit

    def acknowledgement(self) -> Commit:
        """Make a commit of nothing: it tells the draft where the target stands."""
        end = len(self.ledger.committed)
        return Commit(
            window_id=self.open_window.id,
            base=end,
            tokens=(),
            candidates_received=self.candidates_received,
            held=self.ledger.held,
            credit=end + self.limits.max_ahead_tokens,
        )
