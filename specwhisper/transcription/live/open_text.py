"""The text of live audio that is not final.

Pure functions and state over texts. A word keeps the space before it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from specwhisper.transcription.vocabulary import UNSPACED, Vocabulary
from specwhisper.types import Hypothesis

NUM_STABLE = 4  # hypotheses in a row that have a stable word
MAX_TIMES = 3  # that a phrase follows itself; people say "no, no, no"
MAX_PERIOD = 40  # tokens of a phrase


def words_of(text: str, language: str) -> list[str]:
    """Cut a text into words, or characters in a language without spaces."""
    return list(text) if language in UNSPACED else re.findall(r"\s*\S+", text)


def num_agreed(before: Sequence[str], now: Sequence[str]) -> int:
    """Count the words with which two texts begin alike, but for case and punctuation."""
    pairs = zip(before, now, strict=False)
    differing = (i for i, (one, other) in enumerate(pairs) if _letters(one) != _letters(other))
    return next(differing, min(len(before), len(now)))


def continuation(known: Sequence[str], words: Sequence[str]) -> int:
    """Return the position at which ``words`` continue the ``known`` ones.

    The prefix before it is the one that the fewest edits turn into the known words; of several, the longest.
    """
    edits = list(range(len(words) + 1))
    for i, word in enumerate(known, start=1):
        diagonal, edits[0] = edits[0], i
        for j, other in enumerate(words, start=1):
            substitution = diagonal + (_letters(word) != _letters(other))
            diagonal, edits[j] = edits[j], min(substitution, edits[j] + 1, edits[j - 1] + 1)
    return min(range(len(words) + 1), key=lambda j: (edits[j], -j))


def num_before_repeats(tokens: Sequence[int], vocabulary: Vocabulary) -> int:
    """Count the tokens up to the end of the first of the phrases that end a text.

    All of them, unless the text ends with a phrase that is there more than :data:`MAX_TIMES` times, at
    whatever times of the audio.
    """
    tokens = [min(token, vocabulary.timestamp_begin) for token in tokens]
    for period in range(1, min(MAX_PERIOD, len(tokens) // (MAX_TIMES + 1)) + 1):
        start = len(tokens) - period
        while start and tokens[start - 1] == tokens[start - 1 + period]:
            start -= 1
        if len(tokens) - start >= period * (MAX_TIMES + 1):
            return start + period
    return len(tokens)


def _letters(word: str) -> str:
    return "".join(character for character in word.casefold() if character.isalnum())


@dataclass(slots=True)
class _Shown:
    """The text of a piece, of which the first ``num_stable`` words are stable.

    Attributes
    ----------
    kept : words that two hypotheses in a row had; two others in a row replace them.
    rest : the newest hypothesis after them.
    recent : the last hypotheses.
    is_whole : whether it holds all words that were said.
    """

    kept: Sequence[str] = ()
    num_stable: int = 0
    rest: Sequence[str] = ()
    recent: deque[Sequence[str]] = field(default_factory=lambda: deque(maxlen=NUM_STABLE))
    is_whole: bool = False

    def add(self, words: Sequence[str], *, is_whole: bool) -> None:
        common = words[: num_agreed(self.recent[-1], words)] if self.recent else ()
        num_same = num_agreed(self.kept, common)
        if num_same < len(common) or num_same == len(self.kept):
            self.kept, self.num_stable = common, min(self.num_stable, num_same)
        if is_whole:  # it may have been cut before words that earlier hypotheses had
            self.kept = self.kept[: continuation(words, self.kept)]
            self.num_stable = min(self.num_stable, len(self.kept))
        self.recent.append(words)
        if len(self.recent) == NUM_STABLE:
            num_shared = min(num_agreed(each, words) for each in self.recent)
            self.num_stable = max(self.num_stable, min(num_shared, num_agreed(self.kept, words)))
        follows = num_agreed(self.kept, words) == len(self.kept)
        self.rest = words[len(self.kept) if follows else continuation(self.kept, words) :]
        self.is_whole = is_whole

    @property
    def words(self) -> list[str]:
        """All words to show: the last one of audio that was cut is a guess."""
        return [*self.kept, *(self.rest if self.is_whole else self.rest[:-1])]


class OpenText:
    """The draft's texts of the pieces without final text.

    Attributes
    ----------
    language : in which the text is.
    """

    def __init__(self) -> None:
        self.language = ""  # before the first window
        self._pieces: dict[int, _Shown] = {}  # by first sample

    def show(self, hypothesis: Hypothesis) -> None:
        shown = self._pieces.setdefault(hypothesis.start_sample, _Shown())
        shown.add(words_of(hypothesis.text, self.language), is_whole=hypothesis.is_complete)

    def show_from(self, start_sample: int, words: Sequence[str]) -> None:
        """Take a recogniser's text from a time on, which replaces all later text."""
        self._pieces = {start: each for start, each in self._pieces.items() if start <= start_sample}
        self._pieces.setdefault(start_sample, _Shown()).add(words, is_whole=True)

    def forget_before(self, sample: int) -> None:
        """Forget the pieces that begin before a sample: their text is final."""
        self._pieces = {start: each for start, each in self._pieces.items() if start >= sample}

    def after(self, verified: str) -> tuple[str, str]:
        """Return the stable and the tentative part of the text after the target's own.

        Four hypotheses in a row have the stable part. Each later piece follows the whole text before it.
        """
        known = words_of(verified, self.language)
        stable: list[str] = []
        tentative: list[str] = []
        for index, (_, shown) in enumerate(sorted(self._pieces.items(), key=itemgetter(0))):
            words = shown.words
            begin = continuation(known, words) if known and not index else 0
            if begin and words[begin - 1] != known[-1] and words[begin - 1].startswith(known[-1]):
                begin -= 1  # the target has written a part of the word
                words[begin] = words[begin].removeprefix(known[-1])
            end = begin if tentative else max(begin, shown.num_stable)
            stable += words[begin:end]
            tentative += words[end:]
        return "".join(stable), "".join(tentative)
