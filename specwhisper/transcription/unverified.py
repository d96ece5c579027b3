"""What stands in for a target that cannot be reached: it believes every word of the draft.

It says what a target would say, so that the draft goes on as ever; nobody may take its text for the target's.
"""

from __future__ import annotations

from collections.abc import Sequence

from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import (
    WINDOW_FRAMES,
    AudioChunk,
    Candidates,
    Commit,
    Finished,
    Limits,
    Window,
    WindowOpened,
)


class Extent:
    """How far live audio reaches."""

    def __init__(self) -> None:
        self.received_samples = 0

    def window_is_ready(self, start_frame: int) -> bool:
        """Whether all that a window needs has come: of live audio, all that there is."""
        return True

    def window_frames(self, start_frame: int) -> int:
        """Count the frames of a window."""
        return WINDOW_FRAMES


class BelievingTarget:
    """A pure state machine: audio and candidates in, windows and commits out, no model behind it."""

    def __init__(
        self, vocabulary: Vocabulary, options: DecodingOptions, limits: Limits, *, max_new_tokens: int
    ) -> None:
        self._vocabulary = vocabulary
        self._windows = LiveWindows(vocabulary, options, max_new_tokens=max_new_tokens)
        self._limits = limits
        self._extent = Extent()
        self._window: Window | None = None
        self._committed: list[int] = []
        self._early: list[Candidates] = []
        self._num_received = 0  # number of the newest block about the window
        self._is_finished = False

    def hear(self, chunk: AudioChunk) -> list[WindowOpened | Commit | Finished]:
        """Take in audio, and say what it leads to."""
        end_sample = chunk.start_sample + len(chunk.pcm) // 2
        self._extent.received_samples = max(self._extent.received_samples, end_sample)
        self._windows.hear(chunk, self._extent.received_samples)
        return self._go_on()

    def offer(self, block: Candidates) -> list[WindowOpened | Commit | Finished]:
        """Believe a block, if it is about the open window and leaves no gap."""
        window = self._window
        if window is None or block.window_id != window.id:
            if block.start_frame is not None:
                self._early = [*self._early, block][-self._limits.max_ahead_tokens :]
            return []
        if block.start_frame is not None and block.start_frame != window.start_frame:
            return []
        self._num_received = max(self._num_received, block.number)
        end = len(self._committed)
        known = block.tokens[max(0, end - block.base) :] if block.base <= end else ()
        tokens = self._until_end(known, window.max_new_tokens - end)
        self._committed += tokens
        is_final = bool(tokens) and (
            tokens[-1] in self._vocabulary.ends or len(self._committed) == window.max_new_tokens
        )
        commit = Commit(
            window_id=window.id,
            base=end,
            tokens=tokens,
            candidates_received=self._num_received,
            held=len(self._committed),
            credit=len(self._committed) + self._limits.max_ahead_tokens,
            is_final=is_final,
            step=self._windows.close(window, self._committed).step if is_final else None,
        )
        if not is_final:
            return [commit]
        self._window = None
        return [commit, *self._go_on()]

    def _until_end(self, tokens: Sequence[int], room: int) -> tuple[int, ...]:
        for i, token in enumerate(tokens[:room]):
            if token in self._vocabulary.ends:
                return tuple(tokens[: i + 1])
        return tuple(tokens[:room])

    def _go_on(self) -> list[WindowOpened | Commit | Finished]:
        """Open the next window, if there is one."""
        if self._window is not None or self._is_finished:
            return []
        num_frames = self._windows.ready_frames(self._extent)
        if num_frames is None:
            return []
        if num_frames == 0:
            self._is_finished = True
            return [Finished()]
        self._window, self._committed, self._num_received = self._windows.open(num_frames), [], 0
        events: list[WindowOpened | Commit | Finished] = [
            WindowOpened(self._window, num_final=self._windows.num_final)
        ]
        early, self._early = self._early, []
        for block in early:
            events += self.offer(block)
        return events
