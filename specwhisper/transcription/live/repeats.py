"""Find where a text begins to repeat itself: its model has lost its place."""

from __future__ import annotations

from collections.abc import Sequence

from specwhisper.transcription.vocabulary import Vocabulary

MAX_TIMES = 3  # that a phrase follows itself; people say "no, no, no"
MAX_PERIOD = 40  # tokens of a phrase


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
