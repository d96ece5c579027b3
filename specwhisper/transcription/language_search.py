"""Find how far one language is spoken, piece by piece between pauses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from specwhisper.types import Span

SURE = 0.7  # another language than the one before is spoken only with this probability
ENOUGH_FRAMES = 80  # with less speech the language is often not found
MAX_UNDETECTED_FRAMES = 400  # so that no five seconds in another language pass by

Probs: TypeAlias = Mapping[str, float]
Search: TypeAlias = Generator[tuple[int, int], Probs, tuple[str, int, Probs]]
Voice: TypeAlias = Callable[[bytes], Sequence[Span]]  # finds speech in PCM, in samples


def among(probs: Probs, allowed: Collection[str]) -> Probs:
    """Return probabilities as if only the allowed languages were spoken."""
    total = sum(probs[code] for code in allowed) or 1.0
    return {code: probs[code] / total for code in allowed} if allowed else probs


def choose(probs: Probs, before: str | None, sure: float = SURE) -> str:
    """Return the likeliest language, or the one before unless another is sure."""
    likeliest = max(probs, key=probs.__getitem__)
    return likeliest if before not in probs or probs[likeliest] >= sure else str(before)


def has_enough(spoken: Sequence[Span]) -> bool:
    """Return whether the language of the first piece can be detected."""
    return bool(spoken) and spoken[0].stop - spoken[0].start >= ENOUGH_FRAMES


def join_short(spoken: Iterable[Span]) -> list[Span]:
    """Join short pieces, each with a neighbour over the shorter pause."""
    joined = list(spoken)
    while len(joined) > 1:
        length, shortest = min((piece.stop - piece.start, index) for index, piece in enumerate(joined))
        if length >= ENOUGH_FRAMES:
            break
        pauses = range(max(0, shortest - 1), min(shortest + 1, len(joined) - 1))
        at = min(pauses, key=lambda index: joined[index + 1].start - joined[index].stop)
        joined[at : at + 2] = [Span(joined[at].start, joined[at + 1].stop)]
    return joined


def cuts(spoken: Iterable[Span]) -> list[int]:
    """Return the middle of each pause."""
    return [(before.stop + after.start) // 2 for before, after in pairwise(spoken)]


def search(bounds: Sequence[int], before: str | None, *, detects_first: bool = True) -> Search:
    """Return the language of the first piece, where it ends, and its probabilities.

    Pieces are yielded, by first frame and length; the probabilities of the allowed languages are to be sent.
    Not all are, but all between two that differ.

    Parameters
    ----------
    bounds : frames at which the pieces begin, and the end.
    before : language of the speech before them.
    detects_first : whether that of the first piece is detected; otherwise it is the one before.
    """
    pieces = [(start, stop - start) for start, stop in pairwise(bounds)]
    probs = (yield pieces[0]) if detects_first else {str(before): 1.0}
    language, same = choose(probs, before), 0
    while same + 1 < len(pieces):
        following = range(same + 1, len(pieces))
        near = max(i for i in following if bounds[i] - bounds[same + 1] <= MAX_UNDETECTED_FRAMES)
        found = yield pieces[near]
        if choose(found, language) == language:
            same, probs = near, found
            continue
        for between in range(same + 1, near):
            if choose((yield pieces[between]), language) != language:
                return language, bounds[between], probs
        return language, bounds[near], probs
    return language, bounds[-1], probs
