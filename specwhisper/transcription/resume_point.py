"""Continue a recording on another target.

That target needs the open window, the tokens committed in it, and the audio from its start on, since
committed tokens never change. Pure: the session reports what it sends and receives, and calls
:meth:`ResumeTracker.resume` when the target is lost.

====================  =========================================  =========================================
State                 Shown by                                   Events of the target
====================  =========================================  =========================================
no window             ``_opened`` is ``None``                    go to the reader
open                  ``is_reopened``                            go to the reader
reopening             not ``is_reopened``: another target has    the opening of the window goes to a
                      the session, but not opened the window     reader that has not seen it; candidates
                                                                 are lost until then, and answered after
complete again        the window was complete already            the last token again: the reader sees
                                                                 no event until the next window opens
====================  =========================================  =========================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specwhisper.errors import InvalidCandidates, InvalidRequest
from specwhisper.options import DecodingOptions
from specwhisper.transcription.transcript import OpenWindow
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import (
    CONTEXT_SAMPLES,
    UNKNOWN_AGE_NS,
    Candidates,
    Commit,
    Resume,
    Timing,
    WindowOpened,
)

SentEvents = list[WindowOpened | Commit]


def audio_needed_from(start_sample: int) -> int:
    """Return the first sample that is needed to decode a window."""
    return max(0, start_sample - CONTEXT_SAMPLES)


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a recording stands, for a session of another draft and target.

    Attributes
    ----------
    resume : the message that the target is sent.
    is_sent : whether the client has the text of the window, which is complete but for its last token.
    no_speech_prob : the probability that the window holds no speech.
    language_probs : those of the recording, if its language was detected.
    """

    resume: Resume
    is_sent: bool = False
    no_speech_prob: float | None = None
    language_probs: Mapping[str, float] = field(default_factory=dict)

    def commit(self, max_ahead_tokens: int) -> Commit:
        """Return one commit of all committed tokens, with which a draft and a transcript begin here."""
        resume, end = self.resume, len(self.resume.committed)
        return Commit(
            resume.window.id,
            base=0,
            tokens=resume.committed,
            log_probs=resume.log_probs,
            held=end,
            credit=end + max_ahead_tokens,
            no_speech_prob=self.no_speech_prob,
            language_probs=self.language_probs,
            timing=Timing(block_age_ns=UNKNOWN_AGE_NS),
        )


class ResumeTracker:
    """Follows a session over all targets that run it.

    Its reader sees the events as if one target had sent them.

    A window that is complete is resumed before its last token: the new target writes that token again,
    closes the window as the lost target did, and opens the next one. The reader sees none of this.

    Parameters
    ----------
    max_ahead_tokens : candidates that may lie beyond the committed end.
    begin : where the session begins, if not at the start of the recording. Its reader is sent the window and
        what is committed in it, once a target has opened it.

    Attributes
    ----------
    is_reopened : whether the current target has opened the window that it resumes. Candidates that are sent
        earlier are lost.
    """

    def __init__(self, max_ahead_tokens: int, begin: ResumePoint | None = None) -> None:
        self._max_ahead_tokens = max_ahead_tokens
        self._opened: WindowOpened | None = None  # the last window, as it was opened
        self._window: OpenWindow | None = None  # what is committed in it
        self._has_committed = False  # in any window
        self._language_probs: Mapping[str, float] = {}
        self.is_reopened = True
        self._to_replay = begin
        if begin is not None:
            resume = begin.resume
            self._opened = WindowOpened(
                resume.window, log_mel_max=resume.log_mel_max, previous=resume.previous
            )
            self._window = OpenWindow(resume.window, resume.committed, resume.log_probs)
            self._window.no_speech_prob, self._language_probs = begin.no_speech_prob, begin.language_probs
            self._has_committed = True
            self.is_reopened = False
        self._newest: dict[int, int] = {}  # number of the newest block by window
        self._lost: dict[int, int] = {}  # the same for blocks that no target has
        self._pending_block: Candidates | None = None

    @property
    def needed_from(self) -> int:
        return self._opened.window.start_sample if self._opened else 0

    @property
    def audio_from(self) -> int:
        """First sample that another target needs, with its window's context."""
        return audio_needed_from(self.needed_from)

    def advances(self, commit: Commit) -> bool:
        """Return whether the recording got further by a commit that is new to the reader."""
        return bool(commit.tokens)

    def propose(self, block: Candidates) -> None:
        """Count a block that is sent to the target, or lost without a target."""
        self._newest[block.window_id] = max(block.block_number, self._newest.get(block.window_id, 0))

    def resume(self) -> Resume | None:
        """Return the message that makes another target continue.

        ``None`` if the target has to start again, with all of the audio. It has to until some token is
        committed, because the detected language is part of the first window's prompt.
        """
        if self._opened is None or self._window is None or not self._has_committed:
            return None
        end = len(self._window.tokens) - self._window.is_complete
        return Resume(
            self._opened.window,
            tuple(self._window.tokens[:end]),
            self._opened.log_mel_max,
            tuple(self._window.log_probs[:end]),
            self._opened.previous,
        )

    def resume_point(self) -> ResumePoint | None:
        """Return where another session can continue; ``None`` if it has to start again."""
        if self._to_replay is not None:
            return self._to_replay
        resume = self.resume()
        if resume is None or self._window is None:
            return None
        return ResumePoint(
            resume, self._window.is_complete, self._window.no_speech_prob, self._language_probs
        )

    def migrate(self) -> None:
        """Note that another target has taken the session."""
        self.is_reopened = self._opened is None

    def pop_pending_block(self) -> Candidates | None:
        """Return the block for the last token of a complete window, once.

        The target waits for candidates, and no draft proposes a token that is already committed.
        """
        block, self._pending_block = self._pending_block, None
        return block

    def observe(self, event: WindowOpened | Commit) -> SentEvents:
        """Take in an event of the target; return the events that are new to the reader."""
        if isinstance(event, WindowOpened):
            return self._open(event)
        window = self._window
        if window is None or event.window_id != window.window.id:
            raise InvalidCandidates(f"A commit is for window {event.window_id}, which is not open.")
        if window.is_complete and event.base <= len(window.tokens):
            return []  # the last token again
        event = window.append(event)
        self._has_committed |= bool(event.tokens)
        self._language_probs = event.language_probs or self._language_probs
        return [event]

    def _open(self, opened: WindowOpened) -> SentEvents:
        if not self.is_reopened:
            return self._reopen(opened)
        self._opened, self._window = opened, OpenWindow(opened.window)
        self._newest = {
            number: newest for number, newest in self._newest.items() if number >= opened.window.id
        }
        return [opened, *self._answer_lost_blocks(opened)]

    def _reopen(self, opened: WindowOpened) -> SentEvents:
        window = self._window
        if window is None or opened.window != window.window:
            raise InvalidCandidates(
                f"A target was asked to resume a window, but opened another one: {opened.window.id}."
            )
        begin, self._to_replay = self._to_replay, None
        new: SentEvents = [] if begin is None else [opened, begin.commit(self._max_ahead_tokens)]
        self.is_reopened, self._lost = True, dict(self._newest)
        if not window.is_complete:
            return [*new, *self._answer_lost_blocks(opened)]
        end = len(window.tokens) - 1
        self._pending_block = Candidates(opened.window.id, end, end, ())
        return new

    def _answer_lost_blocks(self, opened: WindowOpened) -> SentEvents:
        """Answer the lost blocks of a window, so that the draft sends its tokens again."""
        number = self._lost.pop(opened.window.id, 0)
        if not number or self._window is None:
            return []
        end = len(self._window.tokens)
        return [
            Commit(
                opened.window.id,
                base=end,
                tokens=(),
                answered_block=number,
                held=end,
                credit=end + self._max_ahead_tokens,
                timing=Timing(block_age_ns=UNKNOWN_AGE_NS),
            )
        ]


def check_resume(resume: Resume, vocabulary: Vocabulary, options: DecodingOptions) -> None:
    """Raise :class:`InvalidRequest` for a window that is complete or does not fit."""
    window, committed = resume.window, resume.committed
    room = vocabulary.max_length - len(window.prompt)
    if not (vocabulary.start_of_transcript in window.prompt and 1 <= window.max_new_tokens <= room):
        raise InvalidRequest(
            f"A resumed window with a prompt of {len(window.prompt)} tokens and {window.max_new_tokens} "
            f"to generate does not fit this target's {vocabulary.max_length}."
        )
    if window.prefix:
        raise InvalidRequest(
            f"A resumed window has a prefix of {len(window.prefix)} tokens: only windows of live audio have "
            "one, and that is continued by its position."
        )
    if len(resume.log_probs) != len(committed):
        raise InvalidRequest(
            f"Resume has {len(committed)} committed tokens but {len(resume.log_probs)} log-probabilities."
        )
    if window.attempt >= len(options.temperatures):
        raise InvalidRequest(
            f"Window {window.id} is attempt {window.attempt}, but the options name "
            f"{len(options.temperatures)} temperatures: resume it with the options it was opened with."
        )
    if len(committed) == window.max_new_tokens or not vocabulary.ends.isdisjoint(committed):
        raise InvalidRequest(f"Window {window.id} is complete: resume a session with a window that is open.")
