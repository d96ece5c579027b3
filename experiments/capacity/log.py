"""Log of one recording: forward passes, windows, and the lag of each window."""

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

PIECE_SAMPLES = SAMPLE_RATE // 4  # 0.25 s, the piece size of a live client


@dataclass(frozen=True, slots=True)
class Expected:
    """A window of the target and its tokens."""

    start_frame: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """A commit with tokens.

    Attributes
    ----------
    at_s : arrival at the client by the monotonic clock.
    held : tokens in the slot before, with the prompt.
    num_verified, num_accepted : candidates of the draft, without hints.
    """

    at_s: float
    held: int
    num_tokens: int
    num_verified: int
    num_accepted: int
    queue_ns: int


@dataclass(slots=True)
class SessionLog:
    """Log of one recording.

    Attributes
    ----------
    num_samples : length of the recording.
    expected : expected windows, in order.
    start_s : time of the first sample; ``None`` for a file.
    done_s : arrival of each window's last tokens.
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

    def add(self, at_s: float, event: WindowOpened | Commit) -> None:
        """Add an event of the target."""
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
        """Check the number of windows at the end."""
        if (found := len(self.done_s)) != len(self.expected):
            self.differences.append(f"{self.recording}: {found} windows instead of {len(self.expected)}")

    def due_s(self, number: int) -> float:
        """Return when all audio of a window had been spoken.

        The speaker's clock counts, not the time at which a delayed sender got it through.
        """
        if self.start_s is None:
            return inf
        needed = self.expected[number].start_frame * HOP_SAMPLES + WINDOW_SAMPLES
        needed += CONTEXT_SAMPLES - HOP_SAMPLES
        pieces = -(-needed // PIECE_SAMPLES)
        return self.start_s + min(pieces * PIECE_SAMPLES, self.num_samples) / SAMPLE_RATE

    def lags_s(self, begin_s: float, end_s: float, now_s: float) -> list[float]:
        """Return the lag of each window that was due in a period.

        The lag of a window that is still open counts until now.
        """
        lags = []
        for number in range(len(self.expected)):
            due_s = self.due_s(number)
            if begin_s <= due_s < end_s:
                lags.append((self.done_s[number] if number < len(self.done_s) else now_s) - due_s)
        return lags

    def is_overdue(self, before_s: float) -> bool:
        """Return whether a window that was due before a time is still open."""
        return any(self.due_s(number) < before_s for number in range(len(self.done_s), len(self.expected)))

    def _compare(self, start_frame: int) -> None:
        number = len(self.done_s)
        if number >= len(self.expected) or self.expected[number] != Expected(
            start_frame, tuple(self._tokens)
        ):
            self.differences.append(
                f"{self.recording}, window {number} at frame {start_frame}: differs from target-only"
            )


def expected_windows(trace: Trace, recording: str, vocabulary: Vocabulary) -> list[Expected]:
    """Return the windows that the target alone decodes with timestamps."""
    found = [
        Expected(decoding.start_frame, decoding.tokens)
        for decoding in trace.decodings
        if decoding.recording == recording and vocabulary.no_timestamps not in decoding.prompt
    ]
    return sorted(found, key=lambda window: window.start_frame)
