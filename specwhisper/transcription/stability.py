"""Find the stable part of a hypothesis.

Pure functions over text tokens, without timestamps.

Final text is never taken back, and never forced on the next decoding. If that words it differently, the
continuation is found by the closest match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

MayBegin = Callable[[int], bool]  # whether a token may be the first one after final text


def continuation(final: Sequence[int], text: Sequence[int], may_begin: MayBegin) -> int:
    """Return the position at which ``text`` continues the ``final`` text.

    The prefix before it is the one that the fewest edits turn into the final text. Of several, one with the
    final text's last token is chosen, since text inserted before that token repeats nothing; then the one
    of the nearest length, since a changed word replaces another. A continuation never begins within a word.
    """
    num_same = 0
    while num_same < min(len(final), len(text)) and final[num_same] == text[num_same]:
        num_same += 1
    if num_same == len(final):
        start = num_same
    else:  # the common prefix, usually most of the text, needs no edits
        edits = _prefix_edits(final[num_same:], text[num_same:])
        start = min(
            range(num_same, len(text) + 1),
            key=lambda i: (
                edits[i - num_same],
                i == 0 or text[i - 1] != final[-1],
                abs(i - len(final)),
                -i,
            ),
        )
    while 0 < start < len(text) and not may_begin(text[start]):
        start += 1
    return start


def agreed(before: Sequence[int], now: Sequence[int], may_begin: MayBegin) -> int:
    """Count the tokens of the whole words on which two hypotheses agree.

    They agree from their beginning on (LocalAgreement-2, Liu et al., Interspeech 2020).
    """
    count = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        count += 1
    # A word that continues in one of them is not the same word.
    return whole_words(now, whole_words(before, count, may_begin), may_begin)


def whole_words(text: Sequence[int], count: int, may_begin: MayBegin) -> int:
    """Return the length of a prefix that is cut back to the end of a word."""
    while 0 < count < len(text) and not may_begin(text[count]):
        count -= 1
    return count


def up_to_last_word(text: Sequence[int], may_begin: MayBegin) -> int:
    """Return the number of tokens before the last word."""
    return next((i for i in reversed(range(len(text))) if may_begin(text[i])), 0)


def _prefix_edits(final: Sequence[int], text: Sequence[int]) -> list[int]:
    """Count the edits that turn ``final`` into each prefix of ``text``."""
    edits = list(range(len(text) + 1))
    for i, token in enumerate(final, start=1):
        diagonal, edits[0] = edits[0], i
        for j, other in enumerate(text, start=1):
            diagonal, edits[j] = (
                edits[j],
                min(
                    diagonal + (token != other),
                    edits[j] + 1,
                    edits[j - 1] + 1,
                ),
            )
    return edits
