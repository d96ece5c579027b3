"""Which stretch of audio is decoded next, and with which prompt."""

from __future__ import annotations

from collections.abc import Sequence

from specwhisper.errors import UnsupportedOption
from specwhisper.transcription.segments import WindowResult, split_window
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import DecodingOptions, Window


class SequentialWindows:
    """Whisper's sequential decoding: each window starts where the last one's text ended.

    Attributes
    ----------
    next_frame : first mel frame of the next window.
    """

    def __init__(
        self, vocabulary: Vocabulary, options: DecodingOptions, *, max_new_tokens: int | None = None
    ) -> None:
        """Begin at frame 0; ``max_new_tokens`` is what a window holds where the caller does not say."""
        self._vocabulary = vocabulary
        self._prompt = vocabulary.prompt(options)
        room = vocabulary.max_length - len(self._prompt)
        if room < 1:
            raise UnsupportedOption(
                f"The prompt has {len(self._prompt)} tokens, but a window of this model holds "
                f"{vocabulary.max_length}."
            )
        self._max_new_tokens = min(options.max_new_tokens or max_new_tokens or room, room)
        self._next_id = 0
        self.next_frame = 0

    def open(self, num_frames: int) -> Window:
        """Open the next window over ``num_frames`` mel frames that hold audio."""
        window = Window(
            id=self._next_id,
            start_frame=self.next_frame,
            num_frames=num_frames,
            prompt=self._prompt,
            max_new_tokens=self._max_new_tokens,
        )
        self._next_id += 1
        return window

    def resume(self, window: Window) -> None:
        """Take over a window that was opened elsewhere; later ones are numbered behind it."""
        self._next_id = window.id + 1
        self.next_frame = window.start_frame

    def close(self, window: Window, tokens: Sequence[int]) -> WindowResult:
        """Cut a complete window into segments and move on behind it."""
        result = split_window(window, tokens, self._vocabulary)
        self.next_frame = window.start_frame + result.advance_frames
        return result
