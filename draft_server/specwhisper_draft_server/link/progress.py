"""The progress of a session, its voice marks and its hints, for the next target that it runs on.

A recording continues within a window, live audio after its last final text. Both are pure: the session
reports what it receives, and calls ``migrate()`` for each target. For a recording's window:

====================  =========================================  =========================================
State                 Shown by                                   Events of the target
====================  =========================================  =========================================
no window             ``_opened`` is ``None``                    go to the reader
open                  ``_is_reopened``                           go to the reader
reopening             not ``_is_reopened``: another target has   the opening of the window goes to a
                      the session, but not opened the window     reader that has not seen it; candidates
                                                                 are lost until then, and answered after
complete again        the window was complete already            the last token again: the reader sees
                                                                 no event until the next window opens
====================  =========================================  =========================================
"""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from specwhisper.errors import InvalidCandidates
from specwhisper.live import LivePosition
from specwhisper.transcription.hints import HintFeed
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.transcription.resume_point import ResumePoint, audio_needed_from
from specwhisper.transcription.transcript import OpenWindow
from specwhisper.types import (
    ALL_BLOCKS,
    Candidates,
    Commit,
    Resume,
    TimedHint,
    VoiceEvent,
    VoiceMark,
    WindowOpened,
)

# For each hint, and each of its bytes: a target takes about 1 ms for a short one and 9 ms for the longest,
# in which other sessions wait. So one session's hints take at most 4 % of its time.
INTERVAL_S, INTERVAL_S_PER_BYTE = 0.025, 50e-6
BURST_S = 16 * INTERVAL_S  # hints are sent at once until their intervals add up to this

SentEvents = list[WindowOpened | Commit]


class KeptMarks:
    """The voice marks of audio without final text, for each target that needs them."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, VoiceMark]] = deque()  # and the sample at which each was known
        self._num_sent = 0  # these are always the first

    def put(self, known_sample: int, marks: Iterable[VoiceMark]) -> None:
        """Add marks that follow from the audio up to a sample."""
        self._marks += [(known_sample, mark) for mark in marks]

    def forget_before(self, sample: int) -> None:
        ends = (
            index
            for index, (_, mark) in enumerate(self._marks, start=1)
            if mark.event is not VoiceEvent.BEGIN and mark.sample <= sample
        )
        for _ in range(max(ends, default=0)):
            self._marks.popleft()
            self._num_sent = max(0, self._num_sent - 1)

    def restart(self) -> None:
        self._num_sent = 0

    def take(self, sample: int) -> tuple[VoiceMark, ...]:
        new = [mark for known, mark in islice(self._marks, self._num_sent, None) if known <= sample]
        self._num_sent += len(new)
        return tuple(new)


class SessionHints(HintFeed):
    """The client's texts, sent to each target at a pace that it can keep.

    A recogniser's are sent until the client has sent one. Each text replaces all text from its time on, so a
    recognised word would replace captions that a client has sent ahead.
    """

    def __init__(self) -> None:
        super().__init__()
        self._has_new = asyncio.Event()
        self._has_clients = False

    def put(self, hint: TimedHint) -> None:
        """Add a text of the client."""
        self._has_clients = True
        self._put(hint)

    def put_recognised(self, hint: TimedHint) -> None:
        """Add a text of the recogniser, unless the client has sent one."""
        if not self._has_clients:
            self._put(hint)

    def _put(self, hint: TimedHint) -> None:
        super().put(hint)
        self._has_new.set()

    async def send(self, receive: Callable[[TimedHint], None], start_sample: int = 0) -> None:
        self.restart(start_sample)
        while True:
            interval_s = 0.0
            while interval_s < BURST_S and (hints := self.take(1)):
                receive(hints[0])
                interval_s += INTERVAL_S + INTERVAL_S_PER_BYTE * len(hints[0].text.encode())
            if interval_s:
                await sleep(interval_s)
            else:
                self._has_new.clear()
                await self._has_new.wait()


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
    """

    def __init__(self, max_ahead_tokens: int, begin: ResumePoint | None = None) -> None:
        self._max_ahead_tokens = max_ahead_tokens
        self._opened: WindowOpened | None = None  # the last window, as it was opened
        self._window: OpenWindow | None = None  # what is committed in it
        self._has_committed = False  # in any window
        self._language_probs: Mapping[str, float] = {}
        self._is_reopened = True  # whether the current target has opened the window that it resumes
        self._has_lost_blocks = False
        self._to_replay = begin
        if begin is not None:
            resume = begin.resume
            self._opened = WindowOpened(
                resume.window, log_mel_max=resume.log_mel_max, previous=resume.previous
            )
            self._window = OpenWindow(resume.window, resume.committed, resume.log_probs)
            self._window.no_speech_prob, self._language_probs = begin.no_speech_prob, begin.language_probs
            self._has_committed = True
            self._is_reopened = False
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

    def migrate(self) -> Resume | None:
        """Begin on another target; return the message that makes it continue."""
        self._is_reopened = self._opened is None
        self._has_lost_blocks = not self._is_reopened
        return self.resume()

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
        return [event]

    def _open(self, opened: WindowOpened) -> SentEvents:
        if not self._is_reopened:
            return self._reopen(opened)
        self._opened, self._window = opened, OpenWindow(opened.window)
        self._language_probs = opened.language_probs or self._language_probs
        return [opened, *self._answer_lost_blocks(self._window)]

    def _reopen(self, opened: WindowOpened) -> SentEvents:
        window = self._window
        if window is None or opened.window != window.window:
            raise InvalidCandidates(
                f"A target was asked to resume a window, but opened another one: {opened.window.id}."
            )
        begin, self._to_replay = self._to_replay, None
        new: SentEvents = [] if begin is None else [opened, begin.commit(self._max_ahead_tokens)]
        self._is_reopened = True
        if not window.is_complete:
            return [*new, *self._answer_lost_blocks(window)]
        end = len(window.tokens) - 1
        self._pending_block = Candidates(opened.window.id, end, end, ())
        return new

    def _answer_lost_blocks(self, window: OpenWindow) -> SentEvents:
        """Answer the blocks that the lost target had, so that the draft sends their tokens again."""
        if not self._has_lost_blocks:
            return []
        self._has_lost_blocks = False
        end = len(window.tokens)
        credit = end + self._max_ahead_tokens
        return [
            Commit(window.window.id, base=end, tokens=(), answered_block=ALL_BLOCKS, held=end, credit=credit)
        ]


class LiveProgress:
    """The progress of live audio: its last final text.

    All later text is decoded again, and its candidates are sent again. A window has no context before it.

    ``windows``: follow the target's.
    """

    def __init__(self, windows: LiveWindows) -> None:
        self.windows = windows

    @property
    def needed_from(self) -> int:
        """First sample that the next window may hold."""
        return self.windows.needed_from

    audio_from = needed_from

    def advances(self, commit: Commit) -> bool:
        """Return whether text has become final."""
        return commit.piece is not None

    def migrate(self) -> LivePosition:
        return self.windows.position

    def observe(self, event: WindowOpened | Commit) -> Sequence[WindowOpened | Commit]:
        return (event,)

    def pop_pending_block(self) -> None:
        """Return ``None``: the target of live audio doesn't wait for candidates."""


Progress = ResumeTracker | LiveProgress
