"""What another target must know to go on with a recording: little, since what is committed is a prefix.

Pure: whoever runs the session feeds it what goes up and comes down, and asks for :meth:`Resumption.resume`
when the target is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specwhisper.errors import InvalidCandidates
from specwhisper.types import UNKNOWN_AGE_NS, Candidates, Commit, Resume, Timing, WindowOpened

SentEvents = list[WindowOpened | Commit]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a recording stands, for another session with it to go on: of another draft, with another target.

    Attributes
    ----------
    resume : what its target is told.
    is_sent : whether the window's text is told: it is complete but for the last token.
    no_speech_prob : of the window.
    language_probs : of the recording, where its language was detected.
    """

    resume: Resume
    is_sent: bool = False
    no_speech_prob: float | None = None
    language_probs: Mapping[str, float] = field(default_factory=dict)

    def commit(self, max_ahead_tokens: int) -> Commit:
        """Give what is committed, for who has not heard of it."""
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


class Resumption:
    """Follows a session over the targets that it runs on, so that whoever listens hears of one.

    A window that is complete is resumed before its last token: the target writes that once more, closes the
    window as the lost one did, and goes on behind it. Nobody is told twice.

    Parameters
    ----------
    max_ahead_tokens : candidates that may lie beyond the committed end.
    resume : where it goes on from the first; whoever listens has not heard of the window, but knows what is
        committed in it.

    Attributes
    ----------
    is_known : whether the target has named the window it goes on with; it drops candidates that come before.
    """

    def __init__(self, max_ahead_tokens: int, resume: Resume | None = None) -> None:
        self._max_ahead_tokens = max_ahead_tokens
        self._opened: WindowOpened | None = None  # the last window
        self._committed: list[int] = []
        self._log_probs: list[float] = []
        self._is_complete = False  # whether the window is
        self._has_committed = False  # in any window
        self.is_known = True
        self._is_sent = True  # whether who listens has heard of it
        self._no_speech_prob: float | None = None
        self._language_probs: Mapping[str, float] = {}
        if resume is not None:
            self._opened = WindowOpened(
                resume.window, log_mel_max=resume.log_mel_max, previous=resume.previous
            )
            self._committed, self._log_probs = list(resume.committed), list(resume.log_probs)
            self._has_committed = True
            self.is_known = self._is_sent = False
        self._newest: dict[int, int] = {}  # number of the newest block about each window
        self._lost: dict[int, int] = {}  # of those that no target has
        self._owed: Candidates | None = None

    @property
    def needed_from(self) -> int:
        """The open window's first sample: another target needs the audio from there on."""
        return self._opened.window.start_sample if self._opened else 0

    def propose(self, block: Candidates) -> None:
        """Note candidates that are sent to the target, or lost for lack of one that would take them."""
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
            self._opened.log_mel_max,
            tuple(self._log_probs[:num_told]),
            self._opened.previous,
        )

    def checkpoint(self) -> Checkpoint | None:
        """Tell another session where to go on; ``None`` where it begins anew."""
        resume = self.resume()
        if resume is None:
            return None
        return Checkpoint(resume, self._is_complete, self._no_speech_prob, self._language_probs)

    def move(self) -> None:
        """Note that another target has taken the session."""
        self.is_known = self._opened is None

    def take_owed(self) -> Candidates | None:
        """Give what the target must be told, if anything: nobody drafts a complete window's last token."""
        owed, self._owed = self._owed, None
        return owed

    def observe(self, event: WindowOpened | Commit) -> SentEvents:
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
        self._no_speech_prob = event.no_speech_prob if known == 0 else self._no_speech_prob
        self._language_probs = event.language_probs or self._language_probs
        self._committed += event.tokens
        self._log_probs += event.log_probs
        self._is_complete = event.is_final
        return [event]

    def _open(self, opened: WindowOpened) -> SentEvents:
        if not self.is_known:
            if self._opened is None or opened.window != self._opened.window:
                raise InvalidCandidates(
                    f"A target was to go on with a window, and opened another one: {opened.window.id}."
                )
            news: SentEvents = [] if self._is_sent else [opened]
            self.is_known, self._is_sent, self._lost = True, True, dict(self._newest)
            if not self._is_complete:
                return [*news, *self._lost_blocks(opened)]
            end = len(self._committed) - 1
            self._owed = Candidates(opened.window.id, end, end, ())
            return news
        self._opened = opened
        self._committed, self._log_probs, self._is_complete = [], [], False
        self._newest = {
            number: newest for number, newest in self._newest.items() if number >= opened.window.id
        }
        return [opened, *self._lost_blocks(opened)]

    def _lost_blocks(self, opened: WindowOpened) -> SentEvents:
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
