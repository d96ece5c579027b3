"""How a head's text agrees with the target's, in tokens and in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import jiwer

WORD = re.compile(r"[\w']+")


@dataclass(frozen=True, slots=True)
class Agreement:
    """Errors of a text over the length of the target's: 0 is the same text, and they may exceed 1.

    Attributes
    ----------
    tokens : of word pieces.
    words : of words in lower case, without punctuation.
    written_words : of words with case and punctuation.
    """

    tokens: float
    words: float
    written_words: float


def compare(
    own_tokens: Sequence[Sequence[int]],
    head_tokens: Sequence[Sequence[int]],
    own_texts: Sequence[str],
    head_texts: Sequence[str],
) -> Agreement:
    """Compare texts with the target's own, window by window; windows without words do not count."""
    spoken = [i for i, text in enumerate(own_texts) if words(text)]
    if not spoken:
        return Agreement(0.0, 0.0, 0.0)

    def errors(own: Sequence[str], others: Sequence[str]) -> float:
        return float(jiwer.wer([own[i] for i in spoken], [others[i] for i in spoken]))

    return Agreement(
        errors([_as_words(each) for each in own_tokens], [_as_words(each) for each in head_tokens]),
        errors([" ".join(words(text)) for text in own_texts], [" ".join(words(text)) for text in head_texts]),
        errors(own_texts, head_texts),
    )


def words(text: str) -> list[str]:
    """Split a text into words without case and punctuation."""
    return WORD.findall(text.casefold())


def _as_words(tokens: Sequence[int]) -> str:
    return " ".join(map(str, tokens))
