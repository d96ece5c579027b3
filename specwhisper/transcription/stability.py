"""Which part of a hypothesis is final. Pure functions over text tokens, timestamps left out.

Final text is never taken back, and never forced on the next decoding either: where that words it differently,
what follows is found by the closest match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

MayBegin = Callable[[int], bool]  # whether a token may be the first one behind final text


def continuation(final: Sequence[int], text: Sequence[int], may_begin: MayBegin) -> int:
    """Give where ``text`` goes on behind what is ``final``: its prefix with the fewest edits is left out.

    Of prefixes that match equally well, one that ends as the final text does goes first: what was inserted
    before it repeats nothing. Then the one is taken whose length is nearest: a word that changed stands for
    the one it was. Nothing begins within a word.
    """
    num_same = 0
    while num_same < min(len(final), len(text)) and final[num_same] == text[num_same]:
        num_same += 1
    if num_same == len(final):
        start = num_same
    else:  # what both begin with needs no edits, and is most of it
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
    """LocalAgreement-2: count the whole words at the beginning that two hypotheses share."""
    count = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        count += 1
    # A word that one of them goes on with is not the same word.
    return whole_words(now, whole_words(before, count, may_begin), may_begin)


def attended(attended_ms: Sequence[float], end_ms: float, text: Sequence[int], may_begin: MayBegin) -> int:
    """AlignAtt: count the whole words before the first one for which the decoder looks behind ``end_ms``."""
    count = next((i for i, at_ms in enumerate(attended_ms) if at_ms > end_ms), len(text))
    return whole_words(text, min(count, len(text)), may_begin)


def whole_words(text: Sequence[int], count: int, may_begin: MayBegin) -> int:
    """Cut a prefix of ``count`` tokens back to where a word ends."""
    while 0 < count < len(text) and not may_begin(text[count]):
        count -= 1
    return count


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
