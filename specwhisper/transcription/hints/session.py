"""Hints of a session: in the words of its vocabulary, tokenized by its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specwhisper.errors import UnsupportedOption
from specwhisper.options import DecodingOptions
from specwhisper.speculation.given_hint import GivenHint
from specwhisper.speculation.ledger import SharedHints
from specwhisper.transcription.hints.tokens import WhisperTokens
from specwhisper.transcription.vocabulary import Vocabulary
from specwhisper.types import Mode

Tokenize = Callable[[str], Sequence[int]]


def session_hints(
    mode: Mode,
    options: DecodingOptions,
    vocabulary: Vocabulary,
    given: Callable[[str], GivenHint],
    token_share: Callable[[], float],
) -> SharedHints:
    """Return the hints of a session that opens.

    Parameters
    ----------
    given : returns a text from outside as a hint.
    """
    return SharedHints(
        WhisperTokens(vocabulary, options.timestamps),
        given(options.hint) if mode.drafts and options.hint else None,
        keeps_sent=options.realigns and mode is Mode.FULL,
        token_share=token_share,
    )


def given_hint(text: str, vocabulary: Vocabulary, tokenize: Tokenize) -> GivenHint:
    """Return a text from outside as a hint; it is empty if it cannot be tokenized."""

    def tokens_of(text: str) -> Sequence[int]:
        try:
            return tokenize(text)
        except UnsupportedOption:  # no reason to end a session
            return ()

    return GivenHint(text, tokens_of, vocabulary.word_of)
