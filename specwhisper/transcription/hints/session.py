"""Hints of a session: in the words of its vocabulary, tokenized by its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from specwhisper.errors import UnsupportedOption
from specwhisper.options import DecodingOptions
from specwhisper.speculation.hints.given import LiveHint, ScriptHint, is_unspaced
from specwhisper.speculation.ledger import SharedHints
from specwhisper.transcription.hints.tokens import WhisperTokens
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode


class Tokenize(Protocol):
    """See :meth:`specwhisper.model.model.Model.tokenize`."""

    def __call__(self, text: str, *, after_space: bool = True) -> Sequence[int]:
        """Return the tokens of a text, by default as after a space."""


@dataclass(frozen=True, slots=True)
class HintBuilder:
    """Makes the hints of a model's sessions."""

    vocabulary: Vocabulary
    tokenize: Tokenize

    def of_session(
        self, mode: Mode, options: DecodingOptions, token_share: Callable[[], float]
    ) -> SharedHints:
        """Return the hints of a session that opens."""
        return SharedHints(
            WhisperTokens(self.vocabulary, options.timestamps),
            script=self.script(options.hint) if options.hint else None,
            keeps_sent=mode is Mode.FULL,
            token_share=token_share,
        )

    def script(self, text: str) -> ScriptHint:
        """Return the hint of a session's options."""
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
