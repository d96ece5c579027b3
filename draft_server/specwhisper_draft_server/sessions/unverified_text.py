"""What a draft wrote while no target was there: candidates for whoever hears the same audio afterwards."""

from __future__ import annotations

from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Candidates, Commit, Finished, Limits, Window, WindowOpened


class Foretold:
    """Keeps of each place in the audio the longest window that was written there."""

    def __init__(self) -> None:
        self._texts: dict[int, tuple[int, tuple[int, ...]]] = {}  # frames and tokens, by first frame
        self._window: Window | None = None
        self._tokens: list[int] = []

    def observe(self, event: WindowOpened | Commit | Finished) -> None:
        """Follow what is written."""
        if isinstance(event, WindowOpened):
            self._window, self._tokens = event.window, []
        elif isinstance(event, Commit) and self._window is not None:
            self._tokens += event.tokens
            if event.is_final:
                self._texts[self._window.start_frame] = (self._window.num_frames, tuple(self._tokens))

    def candidates(self, window: Window, vocabulary: Vocabulary, limits: Limits) -> list[Candidates]:
        """Give what was written from a window's beginning on; its ending only if the audio ends there too."""
        num_frames, tokens = self._texts.get(window.start_frame, (0, ()))
        if num_frames != window.num_frames:
            tokens = vocabulary.without_ending(tokens)
        tokens = tokens[: min(limits.max_ahead_tokens, window.max_new_tokens)]
        starts = range(0, len(tokens), limits.max_block_tokens)
        return [
            Candidates(window.id, start, 0, tokens[start : start + limits.max_block_tokens])
            for start in starts
        ]
