"""The text of live audio that is not final.

Pure functions and state over texts. A word keeps the space before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from specwhisper.transcription.vocabulary import UNSPACED
from specwhisper.types import Hypothesis


def words_of(text: str, language: str) -> list[str]:
    """Cut a text into words, or characters in a language without spaces."""
    return list(text) if language in UNSPACED else re.findall(r"\s*\S+", text)


def num_agreed(before: Sequence[str], now: Sequence[str]) -> int:
    """Count the words with which two texts begin alike."""
    return next(
        (i for i, (one, other) in enumerate(zip(before, now, strict=False)) if one != other),
        min(len(before), len(now)),
    )


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


def _letters(word: str) -> str:
    return "".join(character for character in word.casefold() if character.isalnum())


class OpenText:
    """The last two hypotheses of each piece without final text.

    Attributes
    ----------
    language : in which the text is.
    """

    def __init__(self) -> None:
        self.language = "en"
        # The one before and the newest, by first sample.
        self._hypotheses: dict[int, tuple[Sequence[str], Sequence[str]]] = {}

    def show(self, hypothesis: Hypothesis) -> None:
        """Take a draft's newer text of a piece."""
        words = words_of(hypothesis.text, self.language)
        _, before = self._hypotheses.get(hypothesis.start_sample, ((), ()))
        self._hypotheses[hypothesis.start_sample] = before, words

    def show_from(self, start_sample: int, words: Sequence[str]) -> None:
        """Take a recogniser's text from a time on, which replaces all later text."""
        _, before = self._hypotheses.get(start_sample, ((), ()))
        self._hypotheses = {start: each for start, each in self._hypotheses.items() if start < start_sample}
        self._hypotheses[start_sample] = before, words

    def forget_before(self, sample: int) -> None:
        """Forget the pieces that begin before a sample: their text is final."""
        self._hypotheses = {start: each for start, each in self._hypotheses.items() if start >= sample}

    def after(self, verified: str) -> tuple[str, str]:
        """Return the stable and the tentative part of the text after the target's own.

        Two hypotheses in a row agree on the stable part. Each later piece follows the whole text before it.
        """
        known = words_of(verified, self.language)
        stable: list[str] = []
        tentative: list[str] = []
        for index, start in enumerate(sorted(self._hypotheses)):
            before, now = self._hypotheses[start]
            begin = 0 if index or not known else continuation(known, now)
            count = num_agreed(before, now)
            if begin and now[begin - 1] != known[-1] and now[begin - 1].startswith(known[-1]):
                begin -= 1  # the target has written a part of the word
                now = [*now[:begin], now[begin].removeprefix(known[-1]), *now[begin + 1 :]]
            count = max(begin, count)
            if tentative:
                tentative += now[begin:]
            else:
                stable += now[begin:count]
                tentative += now[count:]
        return "".join(stable), "".join(tentative)
