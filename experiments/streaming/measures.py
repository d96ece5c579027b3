"""Measures of the text that a reader sees: time to first and final text, and changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from math import inf

import numpy as np
from jiwer import wer

from experiments.streaming.live_client import LiveResult, Shown
from experiments.streaming.takes import SpokenWord, Take

LONG_S = 45.0  # of speech: shorter takes vary too much between sentences


@dataclass(frozen=True, slots=True)
class FinalWord:
    """When a word was spoken and when it became final, in seconds of the take."""

    spoken_s: float
    final_s: float

    @property
    def latency_s(self) -> float:
        """Time from speech to final text."""
        return self.final_s - self.spoken_s


def normalised(text: str) -> list[str]:
    """Return the words without case and punctuation."""
    return re.sub(r"[^\w\s']", " ", text.lower()).split()


def final_words(take: Take, result: LiveResult) -> list[FinalWord]:
    """Match final words to the words of the take; unmatched words are left out."""
    written = [(word, shown.at_s) for shown in result.shown for word in normalised(shown.final)]
    spoken = [(word, each.end_s) for each in take.words for word in normalised(each.text)]
    matcher = SequenceMatcher(None, [w for w, _ in spoken], [w for w, _ in written], autojunk=False)
    return [
        FinalWord(spoken[block.a + i][1], written[block.b + i][1])
        for block in matcher.get_matching_blocks()
        for i in range(block.size)
    ]


def first_texts_s(take: Take, result: LiveResult) -> list[float]:
    """Return for each utterance the time from its first word's end to its first text.

    Infinite without text; utterances without a word do not count.
    """
    found = []
    begins = [
        (i, shown.speech_start_s) for i, shown in enumerate(result.shown) if shown.speech_start_s is not None
    ]
    for (begin, speech_start_s), (end, ends_s) in pairwise([*begins, (len(result.shown), inf)]):
        word = next((word for word in take.words if speech_start_s < word.end_s < ends_s), None)
        # The first text shown may still be that of the previous utterance.
        old = result.shown[begin].verified + result.shown[begin].draft
        texts = ((shown.at_s, shown.verified + shown.draft) for shown in result.shown[begin + 1 : end])
        first_s = next((at_s for at_s, text in texts if text.strip() and text != old), inf)
        if word is not None:
            found.append(first_s - word.end_s)
    return found


def words_changed(shown: Sequence[Shown], *, with_draft: bool) -> int:
    """Return the number of shown words that changed later; a word that only grew is the same.

    Final text never changes: unfinished text is compared with the text that replaced it.
    """
    changed, before = 0, list[str]()
    for each in shown:
        unfinished = normalised(each.verified + (each.draft if with_draft else ""))
        changed += _num_lost(before, [*normalised(each.final), *unfinished])
        before = unfinished
    return changed


def _num_lost(before: Sequence[str], now: Sequence[str]) -> int:
    """Return the number of words from the first changed one on."""
    kept = 0
    for one, other in zip(before, now, strict=False):
        if not other.startswith(one):
            break
        kept += 1
    return len(before) - kept


def drift_s_per_minute(words: Sequence[FinalWord]) -> float:
    """Return the growth of latency per minute; NaN for a short session."""
    if len(words) < 3 or words[-1].spoken_s - words[0].spoken_s < LONG_S:
        return float("nan")
    spoken_min = np.array([word.spoken_s for word in words]) / 60
    return float(np.polyfit(spoken_min, [word.latency_s for word in words], 1)[0])


def word_errors(spoken: Sequence[SpokenWord], result: LiveResult) -> float:
    """Return the word error rate of the final text against the take's words."""
    reference = " ".join(word for each in spoken for word in normalised(each.text))
    return float(wer(reference, " ".join(normalised(result.text)))) if reference else 0.0
