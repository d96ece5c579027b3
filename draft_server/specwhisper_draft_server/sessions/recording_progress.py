"""Progress of a recording: where another session could continue it.

It also has the replay with which this session continues one.
"""

from __future__ import annotations

from specwhisper.transcription.resume_point import ResumePoint, ResumeTracker
from specwhisper.types import Commit, WindowOpened


class RecordingProgress:
    """Follows a recording's windows and commits.

    A session that continues another one replays what that one had committed in the open window, once the
    target has opened the window again: draft and transcript need it.

    Parameters
    ----------
    begin : where this session continues; ``None`` at the recording's beginning.
    """

    def __init__(self, max_ahead_tokens: int, begin: ResumePoint | None = None) -> None:
        self._tracker = ResumeTracker(max_ahead_tokens)
        self._begin = begin
        self._to_replay = begin
        self._reported_window_id = begin.resume.window.id if begin is not None and begin.is_sent else None

    def observe(self, event: WindowOpened | Commit) -> None:
        """Follow an event of the target."""
        self._tracker.observe(event)

    def replay(self, max_ahead_tokens: int) -> Commit | None:
        """Return what the session before had committed, once.

        Return ``None`` where it was replayed, or there is none.
        """
        begin, self._to_replay = self._to_replay, None
        return None if begin is None else begin.commit(max_ahead_tokens)

    def is_reported(self, event: WindowOpened | Commit) -> bool:
        """Return whether the client has the text of an event from the session before."""
        return isinstance(event, Commit) and event.window_id == self._reported_window_id

    def resume_point(self) -> ResumePoint | None:
        """Return where another session would continue; ``None`` if at the beginning."""
        return self._begin if self._to_replay is not None else self._tracker.resume_point()
