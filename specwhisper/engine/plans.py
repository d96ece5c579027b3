"""Choose the kind of windows that a session has."""

from __future__ import annotations

from specwhisper.model.model import Model
from specwhisper.options import DecodingOptions
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.transcription.prompting import PromptText
from specwhisper.transcription.sequential_windows import SequentialWindows
from specwhisper.transcription.windows import WhisperWindows


class WhisperPlan:
    """Sequential windows for recordings, live windows for live audio.

    Parameters
    ----------
    max_new_tokens : limit of a window's tokens where the options name none.
    """

    def __init__(self, model: Model, max_new_tokens: int | None) -> None:
        self._model = model
        self._max_new_tokens = max_new_tokens

    def __call__(self, options: DecodingOptions) -> WhisperWindows:
        """Return a session's windows; raise :class:`UnsupportedOption` for others."""
        words = PromptText(
            initial=self._model.tokenize(options.initial_prompt),
            hotwords=self._model.tokenize(options.hotwords),
            is_carried=options.carry_initial_prompt,
        )
        kind = SequentialWindows if options.live is None else LiveWindows
        return kind(self._model.vocabulary, options, words, max_new_tokens=self._max_new_tokens)
