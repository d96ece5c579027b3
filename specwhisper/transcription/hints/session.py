"""Hints of a session: in the words and times of its vocabulary, tokenized by its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from specwhisper.errors import UnsupportedOption
from specwhisper.options import DecodingOptions
from specwhisper.speculation.hints.given import LiveHint, ScriptHint, is_unspaced
from specwhisper.speculation.ledger import SharedHints
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode


class Tokenize(Protocol):
    """See :meth:`specwhisper.model.model.Model.tokenize`."""

    def __call__(self, text: str, *, after_space: bool = True) -> Sequence[int]:
        """Return the tokens of a text, by default as after a space."""


@dataclass(frozen=True, slots=True)
class WhisperTokens:
    """See :class:`specwhisper.speculation.hints.hint.HintTokens`."""

    vocabulary: Vocabulary
    timestamps: bool

    def word_of(self, token: int) -> str:
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


@dataclass(frozen=True, slots=True)
class HintBuilder:
    """Makes the hints of a model's sessions."""

    vocabulary: Vocabulary
    tokenize: Tokenize

    def of_session(
        self, mode: Mode, options: DecodingOptions, token_share: Callable[[], float]
    ) -> SharedHints:
        return SharedHints(
            WhisperTokens(self.vocabulary, options.timestamps),
            script=self.script(options.hint) if options.hint else None,
            keeps_sent=mode is Mode.FULL,
            token_share=token_share,
        )

    def script(self, text: str) -> ScriptHint:
        return ScriptHint(text, self._tokens_of, self.vocabulary.word_of)

    def live(self) -> LiveHint:
        """Return a hint for texts with times."""
        return LiveHint(self._tokens_of, self.vocabulary.word_of)

    def _tokens_of(self, text: str) -> Sequence[int]:
        """Return the tokens of a text; none if it cannot be tokenized, since that must not end a session."""
        text = text.strip()
        try:
            return self.tokenize(text, after_space=not text or not is_unspaced(text[0]))
        except UnsupportedOption:
            return ()
