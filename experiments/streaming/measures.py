"""Measures of what a reader sees: when words are shown and final, and how many of them change."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from math import inf

NUM_LOOKED_AHEAD = 5  # final words beyond the number of open ones, for words that the open text lacks
NUM_REPEATS = 4


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word and its end, in seconds of the audio."""

    text: str
    end_s: float


@dataclass(frozen=True, slots=True)
class Shown:
    """The text that a reader sees ``at_s`` seconds after the audio began.

    ``final`` has just become final; the open text, ``stable`` and then ``tentative``, follows it.
    """

    at_s: float
    final: str
    stable: str
    tentative: str

    @property
    def open(self) -> str:
        return self.stable + self.tentative


def words_of(text: str) -> list[str]:
    return re.sub(r"[^\w\s']", " ", text.lower()).split()


def final_words(shown: Sequence[Shown]) -> list[tuple[str, float]]:
    return [(word, each.at_s) for each in shown for word in words_of(each.final)]


def first_shown_s(shown: Sequence[Shown]) -> list[float]:
    """Return for each final word when it was first seen at its place, in open or final text."""
    final = final_words(shown)
    first_s = [at_s for _, at_s in final]
    num_final = 0
    for each in shown:
        num_final += len(words_of(each.final))
        words = words_of(each.open)
        expected = [word for word, _ in final[num_final : num_final + len(words) + NUM_LOOKED_AHEAD]]
        for _, place in _matches(words, expected):
            first_s[num_final + place] = min(first_s[num_final + place], each.at_s)
    return first_s


def shown_after_s(spoken: Sequence[SpokenWord], shown: Sequence[Shown]) -> list[float]:
    """Return for each spoken word in the final text the time from its end until it was first seen."""
    words, first_s = _split(spoken), first_shown_s(shown)
    matches = _matches([word.text for word in words], [word for word, _ in final_words(shown)])
    return [first_s[place] - words[number].end_s for number, place in matches]


def final_after_s(
    spoken: Sequence[SpokenWord], ends_s: Sequence[float], shown: Sequence[Shown]
) -> list[float]:
    """Return for each end of an utterance the time until all its words were final.

    Infinite where no word of it is in the final text. A word that is written otherwise is final with the
    word in its place.
    """
    words, final = _split(spoken), final_words(shown)
    placed = _matches([word.text for word in words], [word for word, _ in final])
    found = []
    for before_s, end_s in pairwise([-inf, *ends_s]):
        inside = [number for number, word in enumerate(words) if before_s < word.end_s <= end_s]
        own = [(number, place) for number, place in placed if number in inside]
        if own:
            number, place = own[-1]
            next_place = min((p for n, p in placed if n > inside[-1]), default=len(final))
            _, at_s = final[min(place + inside[-1] - number, next_place - 1)]
            found.append(at_s - end_s)
        elif inside:
            found.append(inf)
    return found


def num_erased(shown: Sequence[Shown], *, stable_only: bool) -> int:
    """Return the number of shown words that were changed or removed later.

    A last word that only grew is the same. With ``stable_only``, words that were in the stable part, and are
    in neither the final text nor the next stable part.
    """
    erased, before = 0, list[str]()
    for each in shown:
        now = words_of(each.stable if stable_only else each.open)
        kept = [*words_of(each.final), *now]
        erased += len(before) - _num_kept(before, kept)
        before = now
    return erased


def num_differing(shown: Sequence[Shown]) -> int:
    """Return the number of word edits between the last open text before each final text and that text.

    Where open text remains, the last open text may be longer than what became final.
    """
    differing, before = 0, list[str]()
    for each in shown:
        final, now = words_of(each.final), words_of(each.open)
        if final:
            edits = prefix_edits(final, before)
            differing += min(edits) if now else edits[-1]
            before = now
        before = now or before
    return differing


def prefix_edits(words: Sequence[str], others: Sequence[str]) -> list[int]:
    """Return the least number of word edits between ``words`` and each prefix of ``others``."""
    row = list(range(len(others) + 1))
    for word in words:
        diagonal, row[0] = row[0], row[0] + 1
        for place, other in enumerate(others, start=1):
            best = min(diagonal + (word != other), row[place] + 1, row[place - 1] + 1)
            diagonal, row[place] = row[place], best
    return row


def word_errors(reference: str, text: str) -> int:
    return prefix_edits(words_of(reference), words_of(text))[-1]


def num_repeating(shown: Sequence[Shown]) -> int:
    """Return the number of updates with a phrase four times or more that the final text has not so often."""
    final = f" {' '.join(word for word, _ in final_words(shown))} "
    return sum(
        any(f" {' '.join(found)} " not in final for found in repetitions(words_of(each.open)))
        for each in shown
    )


def repetitions(words: Sequence[str], times: int = NUM_REPEATS) -> Iterator[Sequence[str]]:
    """Yield for each length of a phrase the first place where it stands so often in a row."""
    for length in range(1, len(words) // times + 1):
        num_equal = 0
        for end in range(length, len(words)):
            num_equal = num_equal + 1 if words[end] == words[end - length] else 0
            if num_equal == length * (times - 1):
                yield words[end + 1 - length * times : end + 1]
                break


def _split(spoken: Sequence[SpokenWord]) -> list[SpokenWord]:
    """Return words without case and punctuation; "ill-disposed" becomes two."""
    return [SpokenWord(word, each.end_s) for each in spoken for word in words_of(each.text)]


def _matches(words: Sequence[str], others: Sequence[str]) -> list[tuple[int, int]]:
    """Return the places of equal words in both, in order."""
    blocks = SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
    return [(block.a + i, block.b + i) for block in blocks for i in range(block.size)]


def _num_kept(before: Sequence[str], now: Sequence[str]) -> int:
    for place, (word, other) in enumerate(zip(before, now, strict=False)):
        has_grown = place == len(before) - 1 and other.startswith(word)
        if word != other and not has_grown:
            return place
    return min(len(before), len(now))
