"""What another target must know to go on with a recording: little, since what is committed is a prefix.

Pure: whoever runs the session feeds it what goes up and comes down, and asks for :meth:`Resumption.resume`
when the target is lost.
"""

from __future__ import annotations

from dataclasses import replace

from specwhisper.errors import InvalidCandidates
from specwhisper.types import UNKNOWN_AGE_NS, Candidates, Commit, Resume, Timing, WindowOpened

ToldEvents = list[WindowOpened | Commit]


class Resumption:
    """Follows a session over the targets that it runs on, so that whoever listens hears of one.

    A window that is complete is resumed before its last token: the target writes that once more, closes the
    window as the lost one did, and goes on behind it. Nobody is told twice.

    Parameters
    ----------
    max_ahead_tokens : candidates that may lie beyond the committed end.
    """

    def __init__(self, max_ahead_tokens: int) -> None:
        self._max_ahead_tokens = max_ahead_tokens
        self._opened: WindowOpened | None = None  # the last window
        self._committed: list[int] = []
        self._log_probs: list[float] = []
        self._is_complete = False  # whether the window is
        self._has_committed = False  # in any window
        self._is_known = True  # whether the target has named it
        self._newest: dict[int, int] = {}  # number of the newest block about each window
        self._lost: dict[int, int] = {}  # of those that no target has

    @property
    def needed_from(self) -> int:
        """The open window's first sample: another target needs the audio from there on."""
        return self._opened.window.start_sample if self._opened else 0

    def propose(self, block: Candidates) -> None:
        """Note candidates that are on their way to the target."""
        self._newest[block.window_id] = max(block.number, self._newest.get(block.window_id, 0))

    def resume(self) -> Resume | None:
        """Tell another target where to go on; ``None`` where it begins anew, and hears all the audio.

        So it does until something is committed: the language, where it was detected, is told with that.
        """
        if self._opened is None or not self._has_committed:
            return None
        num_told = len(self._committed) - self._is_complete
        return Resume(
            self._opened.window,
            tuple(self._committed[:num_told]),
            self._opened.log_mel_ceiling,
            tuple(self._log_probs[:num_told]),
            self._opened.previous,
        )

    def move(self) -> None:
        """Note that another target has taken the session; no candidates have reached it yet."""
        self._lost = dict(self._newest)
        self._is_known = self._opened is None

    def observe(self, event: WindowOpened | Commit) -> ToldEvents:
        """Take in what the target says; give what is news."""
        if isinstance(event, WindowOpened):
            return self._open(event)
        if self._opened is None or event.window_id != self._opened.window.id:
            raise InvalidCandidates(f"A commit speaks of window {event.window_id}, which is not open.")
        known = len(self._committed)
        if event.base > known:
            raise InvalidCandidates(f"A commit at position {event.base} leaves a gap behind {known}.")
        if self._is_complete:
            return []  # the last token once more
        if num_old := known - event.base:
            event = _behind(event, num_old)
        self._has_committed |= bool(event.tokens)
        self._committed += event.tokens
        self._log_probs += event.log_probs
        self._is_complete = event.is_final
        return [event]

    def _open(self, opened: WindowOpened) -> ToldEvents:
        if not self._is_known:
            if self._opened is None or opened.window != self._opened.window:
                raise InvalidCandidates(
                    f"A target was to go on with a window, and opened another one: {opened.window.id}."
                )
            self._is_known = True
            return [] if self._is_complete else self._lost_blocks(opened)
        self._opened = opened
        self._committed, self._log_probs, self._is_complete = [], [], False
        self._newest = {
            number: newest for number, newest in self._newest.items() if number >= opened.window.id
        }
        return [opened, *self._lost_blocks(opened)]

    def _lost_blocks(self, opened: WindowOpened) -> ToldEvents:
        """Answer the blocks about a window that are lost: the draft sends anew what it still believes."""
        number = self._lost.pop(opened.window.id, 0)
        if not number:
            return []
        end = len(self._committed)
        return [
            Commit(
                opened.window.id,
                base=end,
                tokens=(),
                candidates_received=number,
                held=end,
                credit=end + self._max_ahead_tokens,
                timing=Timing(block_age_ns=UNKNOWN_AGE_NS),
            )
        ]


def _behind(commit: Commit, num_old: int) -> Commit:
    """Leave out tokens that are known."""
    return replace(
        commit,
        base=commit.base + min(num_old, len(commit.tokens)),
        tokens=commit.tokens[num_old:],
        log_probs=commit.log_probs[num_old:],
        margins=commit.margins[num_old:],
    )
