"""The progress of a session, for the next target that it runs on.

A recording continues within a window (:class:`.ResumeTracker`), live audio after its last final text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from specwhisper.live import LivePosition
from specwhisper.transcription.live.windows import LiveWindows
from specwhisper.transcription.resume_point import ResumeTracker
from specwhisper.types import Candidates, Commit, VoiceEvent, VoiceMark, WindowOpened


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


class LiveProgress:
    """The progress of live audio: its last final text.

    Parameters
    ----------
    windows : follow the target's.
    """

    is_reopened = True

    def __init__(self, windows: LiveWindows) -> None:
        self._windows = windows

    @property
    def needed_from(self) -> int:
        """First sample that the next window may hold."""
        return self._windows.needed_from

    @property
    def audio_from(self) -> int:
        """The same: a window of live audio has no context before it."""
        return self._windows.needed_from

    def advances(self, commit: Commit) -> bool:
        """Return whether text has become final; everything else is decoded again."""
        return commit.piece is not None

    def resume(self) -> LivePosition:
        """Return the position after the last final text."""
        return self._windows.position

    def resume_point(self) -> None:
        """Return ``None``: clients continue from the position, too."""

    def migrate(self) -> None:
        """Ignore it: the window is opened anew."""

    def propose(self, block: Candidates) -> None:
        """Ignore it: the window's candidates are sent anew."""

    def observe(self, event: WindowOpened | Commit) -> Sequence[WindowOpened | Commit]:
        """Return the event: readers begin anew with each window."""
        return (event,)

    def pop_pending_block(self) -> None:
        """Return ``None``: the target of live audio doesn't wait for candidates."""


Progress = ResumeTracker | LiveProgress
