"""From what a reader saw to figures: how soon words are final, how soon text comes, how much it changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from math import inf

import numpy as np
from jiwer import wer

from experiments.streaming.listening import Heard, Shown
from experiments.streaming.takes import SpokenWord, Take

LONG_S = 45.0  # of speech, before growth can be told from the differences between sentences


@dataclass(frozen=True, slots=True)
class FinalWord:
    """A word that became final, and when it had been spoken; both in seconds of the take."""

    spoken_s: float
    final_s: float

    @property
    def latency_s(self) -> float:
        """How long the reader waited for it."""
        return self.final_s - self.spoken_s


def normalised(text: str) -> list[str]:
    """Return the words without case and punctuation."""
    return re.sub(r"[^\w\s']", " ", text.lower()).split()


def final_words(take: Take, heard: Heard) -> list[FinalWord]:
    """Match final words to those that the target writes afterwards; others have no known moment."""
    written = [(word, shown.at_s) for shown in heard.shown for word in normalised(shown.final)]
    spoken = [(word, each.end_s) for each in take.words for word in normalised(each.text)]
    matcher = SequenceMatcher(None, [w for w, _ in spoken], [w for w, _ in written], autojunk=False)
    return [
        FinalWord(spoken[block.a + i][1], written[block.b + i][1])
        for block in matcher.get_matching_blocks()
        for i in range(block.size)
    ]


def first_texts_s(take: Take, heard: Heard) -> list[float]:
    """Give, for each utterance, how long after the end of its first word any text of it was shown.

    It is infinite where none was; what was taken for speech and has no word does not count.
    """
    found = []
    begins = [(i, shown.begins_s) for i, shown in enumerate(heard.shown) if shown.begins_s is not None]
    for (begin, begins_s), (end, ends_s) in pairwise([*begins, (len(heard.shown), inf)]):
        word = next((word for word in take.words if begins_s < word.end_s < ends_s), None)
        # What is shown at first may still be the text of the utterance before.
        old = heard.shown[begin].verified + heard.shown[begin].draft
        texts = ((shown.at_s, shown.verified + shown.draft) for shown in heard.shown[begin + 1 : end])
        first_s = next((at_s for at_s, text in texts if text.strip() and text != old), inf)
        if word is not None:
            found.append(first_s - word.end_s)
    return found


def words_changed(shown: Sequence[Shown], *, with_draft: bool) -> int:
    """Count the words that were shown and then became others; a word that only grew is the same.

    Final text never changes: what was not final is compared with what took its place.
    """
    changed, before = 0, list[str]()
    for each in shown:
        behind = normalised(each.verified + (each.draft if with_draft else ""))
        changed += _num_lost(before, [*normalised(each.final), *behind])
        before = behind
    return changed


def _num_lost(before: Sequence[str], now: Sequence[str]) -> int:
    """Count the words from the first one on that is another now."""
    kept = 0
    for one, other in zip(before, now, strict=False):
        if not other.startswith(one):
            break
        kept += 1
    return len(before) - kept


def drift_s_per_minute(words: Sequence[FinalWord]) -> float:
    """Tell by how much latency grows with every minute of a session; not a number of a short one."""
    if len(words) < 3 or words[-1].spoken_s - words[0].spoken_s < LONG_S:
        return float("nan")
    spoken_min = np.array([word.spoken_s for word in words]) / 60
    return float(np.polyfit(spoken_min, [word.latency_s for word in words], 1)[0])


def word_errors(spoken: Sequence[SpokenWord], heard: Heard) -> float:
    """Return the word error rate of the final text against what the target writes afterwards."""
    reference = " ".join(word for each in spoken for word in normalised(each.text))
    return float(wer(reference, " ".join(normalised(heard.text)))) if reference else 0.0
