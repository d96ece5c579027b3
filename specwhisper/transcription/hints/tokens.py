"""The words of a hint, and the times that a window has between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specwhisper.transcription.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class WhisperTokens:
    """See :class:`specwhisper.speculation.hints.hint.HintTokens`.

    Attributes
    ----------
    timestamps : whether windows have times.
    """

    vocabulary: Vocabulary
    timestamps: bool

    def word_of(self, token: int) -> str:
        """Return the text of a token without case, spaces and punctuation."""
        return self.vocabulary.word_of(token)

    def fit(self, committed: Sequence[int], tokens: Sequence[int]) -> Sequence[int]:
        """Return the continuation of a hint with the times that must be there.

        A window begins with a time, mostly 0. One that ends a segment is mostly repeated as the next one's
        start. A hint from outside has neither.
        """
        is_timestamp = self.vocabulary.is_timestamp
        if not self.timestamps or not tokens:
            return tokens
        if not committed:
            return tokens if is_timestamp(tokens[0]) else [self.vocabulary.timestamp_begin, *tokens]
        time = committed[-1]
        if not is_timestamp(time) or len(committed) == 1 or is_timestamp(committed[-2]):  # text follows
            return tokens
        return [time, *(tokens[1:] if is_timestamp(tokens[0]) else tokens)]
