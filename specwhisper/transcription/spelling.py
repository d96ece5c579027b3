"""Spell tokens in an alphabet that all vocabularies share.

The tokens of two byte-level vocabularies differ; their bytes do not. Timestamps and the end of the text are
letters of their own, so they are matched by what they mean and never by id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from specwhisper.transcription.vocabulary import BYTE_OF_CHARACTER, Vocabulary

# Letters 0 to 255 are bytes of UTF-8.
END = 256
FIRST_TIME = 257  # <|0.00|>; later timestamps follow, 20 ms apart
# As GPT-2 splits text into words before it merges bytes, on bytes: those of other scripts count as letters.
# Another split costs accepted tokens, never a word of the text.
WORD = re.compile(
    rb"'(?:s|t|re|ve|m|ll|d)| ?[A-Za-z\x80-\xff]+| ?[0-9]+| ?[^\sA-Za-z0-9\x80-\xff]+|\s+(?!\S)|\s+"
)
MAX_WORD_BYTES = 64  # scripts without spaces have no end of a word to wait for


class Spelling:
    """The letters of a vocabulary's tokens, and byte pair encoding with its merges.

    The order of ids is the order of merges, as in every published Whisper vocabulary. In another vocabulary a
    text may be split otherwise than its own tokenizer would.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._letters: dict[int, tuple[int, ...]] = {}
        self._words: dict[bytes, tuple[int, ...]] = {}
        self._ranks: dict[bytes, int] = {}
        for token, characters in enumerate(vocabulary.tokens[: vocabulary.end_of_text]):
            if characters and all(character in BYTE_OF_CHARACTER for character in characters):
                self._ranks.setdefault(vocabulary.token_bytes((token,)), token)

    def letters(self, token: int) -> tuple[int, ...]:
        """Return the letters of a token; none for prompt tokens."""
        letters = self._letters.get(token)
        if letters is None:
            letters = self._letters[token] = self._spelled(token)
        return letters

    def _spelled(self, token: int) -> tuple[int, ...]:
        vocabulary = self._vocabulary
        if token == vocabulary.end_of_text:
            return (END,)
        if vocabulary.is_timestamp(token):
            return (FIRST_TIME + token - vocabulary.timestamp_begin,)
        return tuple(vocabulary.token_bytes((token,))) if token < vocabulary.end_of_text else ()

    def tokens(self, letters: Sequence[int]) -> list[int]:
        """Return the tokens of letters, without those that the vocabulary lacks."""
        return [token for start, end in words(letters) for token in self.word(letters[start:end])]

    def word(self, letters: Sequence[int]) -> tuple[int, ...]:
        """Return the tokens of one word, or of one timestamp or end."""
        if letters[0] == END:
            return (self._vocabulary.end_of_text,)
        if letters[0] >= FIRST_TIME:
            token = self._vocabulary.timestamp_begin + letters[0] - FIRST_TIME
            return (token,) if token < len(self._vocabulary) else ()
        data = bytes(letters)
        if (tokens := self._words.get(data)) is None:
            if len(self._words) >= MAX_CACHED_WORDS:
                self._words.clear()
            tokens = self._words[data] = self._merged(data)
        return tokens

    def _merged(self, data: bytes) -> tuple[int, ...]:
        """Merge the neighbours whose union has the lowest id, again and again."""
        ranks = self._ranks
        parts = [data[i : i + 1] for i in range(len(data)) if data[i : i + 1] in ranks]
        while len(parts) > 1:
            pairs = [(ranks.get(parts[i] + parts[i + 1]), i) for i in range(len(parts) - 1)]
            merges = [(rank, i) for rank, i in pairs if rank is not None]
            if not merges:
                break
            _, first = min(merges)
            parts[first : first + 2] = [parts[first] + parts[first + 1]]
        return tuple(ranks[part] for part in parts)


MAX_CACHED_WORDS = 50_000


def words(letters: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each word, timestamp and end in letters."""
    start = 0
    while start < len(letters):
        if letters[start] >= END:
            yield start, start + 1
            start += 1
            continue
        end = next((i for i in range(start, len(letters)) if letters[i] >= END), len(letters))
        for match in WORD.finditer(bytes(letters[start:end])):
            first, last = start + match.start(), start + match.end()
            yield from ((i, min(i + MAX_WORD_BYTES, last)) for i in range(first, last, MAX_WORD_BYTES))
        start = end
