"""What one client saw of its recording: passes, windows, and how long after the audio each was answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from experiments.common.replay.trace import Trace
from specwhisper.audio.recording import CONTEXT_SAMPLES
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import (
    HOP_SAMPLES,
    SAMPLE_RATE,
    WINDOW_SAMPLES,
    Commit,
    Window,
    WindowOpened,
)

PIECE_SAMPLES = SAMPLE_RATE // 4  # what a live client sends at once: 0.25 s


@dataclass(frozen=True, slots=True)
class Expected:
    """A window that the target opens, and what it writes there."""

    start_frame: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """A commit that appended something.

    Attributes
    ----------
    at_s : when the client had it, on its monotonic clock.
    held : tokens that the slot held before, prompt included.
    num_verified, num_accepted : candidates, without those that the target remembered by itself.
    """

    at_s: float
    held: int
    num_tokens: int
    num_verified: int
    num_accepted: int
    queue_ns: int


@dataclass(slots=True)
class SessionLog:
    """One recording on its way.

    Attributes
    ----------
    num_samples : how long it is.
    expected : every window, in order.
    start_s : when its first sample was spoken; ``None`` for a file, which is there at once.
    done_s : when each window's last tokens arrived.
    """

    recording: str
    num_samples: int
    expected: Sequence[Expected]
    start_s: float | None = None
    done_s: list[float] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    _window: Window | None = None
    _tokens: list[int] = field(default_factory=list)

    def note(self, at_s: float, event: WindowOpened | Commit) -> None:
        """Take in what the target says."""
        match event:
            case WindowOpened(window=window):
                self._window, self._tokens = window, []
            case Commit() if self._window is not None and event.tokens:
                counts = event.num_drafted_verified, event.num_drafted_accepted
                held = len(self._window.prompt) + event.base
                self.passes.append(Pass(at_s, held, len(event.tokens), *counts, event.timing.queue_ns))
                self._tokens += event.tokens
                if event.is_final:
                    self._compare(self._window.start_frame)
                    self.done_s.append(at_s)

    def finish(self) -> None:
        """Note that the transcript is whole."""
        if (found := len(self.done_s)) != len(self.expected):
            self.differences.append(f"{self.recording}: {found} windows instead of {len(self.expected)}")

    def due_s(self, number: int) -> float:
        """Tell when the audio of a window was complete: all that it needs was spoken, or all there is.

        What counts is the clock of whoever speaks, not when a sender that may be held up got it through.
        """
        if self.start_s is None:
            return inf
        needed = self.expected[number].start_frame * HOP_SAMPLES + WINDOW_SAMPLES
        needed += CONTEXT_SAMPLES - HOP_SAMPLES
        pieces = -(-needed // PIECE_SAMPLES)
        return self.start_s + min(pieces * PIECE_SAMPLES, self.num_samples) / SAMPLE_RATE

    def lags_s(self, begin_s: float, end_s: float, now_s: float) -> list[float]:
        """Return how long each window that was due in a period took from there to its last token.

        One that is still open has taken as long as it has: it counts with what it took until now.
        """
        lags = []
        for number in range(len(self.expected)):
            due_s = self.due_s(number)
            if begin_s <= due_s < end_s:
                lags.append((self.done_s[number] if number < len(self.done_s) else now_s) - due_s)
        return lags

    def owes(self, before_s: float) -> bool:
        """Whether a window that was due before some time is still open."""
        return any(self.due_s(number) < before_s for number in range(len(self.done_s), len(self.expected)))

    def _compare(self, start_frame: int) -> None:
        number = len(self.done_s)
        if number >= len(self.expected) or self.expected[number] != Expected(
            start_frame, tuple(self._tokens)
        ):
            self.differences.append(
                f"{self.recording}, window {number} at frame {start_frame}: not what the target alone writes"
            )


def expected_windows(trace: Trace, recording: str, vocabulary: Vocabulary) -> list[Expected]:
    """Return the windows of a recording as the target alone decodes it with timestamps."""
    found = [
        Expected(decoding.start_frame, decoding.tokens)
        for decoding in trace.decodings
        if decoding.recording == recording and vocabulary.no_timestamps not in decoding.prompt
    ]
    return sorted(found, key=lambda window: window.start_frame)
