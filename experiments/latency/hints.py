"""Hints of a sweep: texts that are mostly right, and texts that are made to mislead."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from specwhisper.transcription.vocabulary import Vocabulary

WRONG_SHARE = 0.1  # of the words of a given hint
NUM_RIGHT, NUM_WRONG = 3, 9  # words of an adversarial hint in turn


def simulated_words(tokens: Sequence[int], vocabulary: Vocabulary) -> list[str]:
    """Return the words of a simulated text, between its spaces, each as the ids of its tokens."""
    words: list[list[int]] = []
    for token in tokens:
        if token >= vocabulary.end_of_text:
            continue
        if words and not vocabulary.token_bytes((token,)).startswith(b" "):
            words[-1].append(token)
        else:
            words.append([token])
    return [" ".join(map(str, word)) for word in words]


def mostly_right(words: Sequence[str], random: Random) -> list[str]:
    """Return a text in which a tenth of the words is replaced, left out or followed by another one."""
    made: list[str] = []
    for word in words:
        if random.random() >= WRONG_SHARE:
            made.append(word)
        else:
            made += random.choice([[random.choice(words)], [], [word, random.choice(words)]])
    return made


def misleading(words: Sequence[str], random: Random) -> list[str]:
    """Return a text that is right for some words, wrong for more, and then continues where it was right."""
    made: list[str] = []
    for start in range(0, len(words), NUM_RIGHT):
        made += words[start : start + NUM_RIGHT]
        made += random.choices(words, k=NUM_WRONG)
    return made
