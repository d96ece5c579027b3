"""Split text tokens into words, as openai/whisper and transformers do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from string import punctuation

from specwhisper.transcription.vocabulary import UNSPACED, Vocabulary

OPENING = "\"'“¡¿([{-"  # joins the word after it, if a space is before it
CLOSING = "\"'.。,，!！?？:：”)]}、"  # joins the word before it  # noqa: RUF001
SENTENCE_ENDS = ".。!！?？"  # noqa: RUF001
REPLACEMENT = "\ufffd"  # stands for broken UTF-8


@dataclass(frozen=True, slots=True)
class SplitWord:
    """A word and the number of its tokens, of which the first and last may be punctuation beside it."""

    text: str
    num_tokens: int
    num_opening: int = 0
    num_closing: int = 0

    def __add__(self, other: SplitWord) -> SplitWord:
        return replace(self, text=self.text + other.text, num_tokens=self.num_tokens + other.num_tokens)


def split_into_words(vocabulary: Vocabulary, tokens: Sequence[int], language: str) -> list[SplitWord]:
    """Return the words of a text.

    They begin at spaces or, in languages that are written without spaces, with every token that begins a
    character. Punctuation belongs to the word beside it.

    Parameters
    ----------
    tokens : text tokens only.
    language : a code such as "en".
    """
    parts = _characters(vocabulary, tokens)
    words = parts if language in UNSPACED else _spaced(parts)
    return _join_closing(_join_opening(words))


def _characters(vocabulary: Vocabulary, tokens: Sequence[int]) -> list[SplitWord]:
    """Split tokens where they end with whole characters; broken ones count as whole."""
    whole = vocabulary.decode(tokens)
    parts: list[SplitWord] = []
    position = start = 0  # in the text, in the tokens
    for end in range(1, len(tokens) + 1):
        text = vocabulary.decode(tokens[start:end])
        broken = text.find(REPLACEMENT)
        if broken >= 0 and whole[position + broken : position + broken + 1] not in ("", REPLACEMENT):
            continue  # the next tokens complete the character
        parts.append(SplitWord(text, end - start))
        position += len(text)
        start = end
    return parts


def _spaced(parts: Iterable[SplitWord]) -> list[SplitWord]:
    """Join parts to words, which begin with a space or are punctuation."""
    words: list[SplitWord] = []
    for part in parts:
        if not words or part.text.startswith(" ") or part.text.strip() in punctuation:
            words.append(part)
        else:
            words[-1] += part
    return words


def _join_opening(words: Sequence[SplitWord]) -> list[SplitWord]:
    joined: list[SplitWord] = []
    for word in reversed(words):
        if joined and word.text.startswith(" ") and word.text.strip() in OPENING:
            word_after = joined[-1]
            num_opening = word.num_tokens + word_after.num_opening
            joined[-1] = replace(word + word_after, num_opening=num_opening)
        else:
            joined.append(word)
    return joined[::-1]


def _join_closing(words: Iterable[SplitWord]) -> list[SplitWord]:
    joined: list[SplitWord] = []
    for word in words:
        if joined and not joined[-1].text.endswith(" ") and word.text in CLOSING:
            num_closing = joined[-1].num_closing + word.num_tokens
            joined[-1] = replace(joined[-1] + word, num_closing=num_closing)
        else:
            joined.append(word)
    return joined
