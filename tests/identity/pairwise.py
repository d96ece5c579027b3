"""A covering array: few rows in which every two values of any two factors meet."""

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import combinations, product
from typing import Any

Pair = frozenset[tuple[int, Hashable]]


def all_pairs(factors: Sequence[Sequence[Hashable]], apart: Sequence[tuple[int, int]] = ()) -> set[Pair]:
    """Yield every pair of values of two factors, except factors that may stay ``apart``."""
    return {
        frozenset(((i, a), (j, b)))
        for i, j in combinations(range(len(factors)), 2)
        if (i, j) not in apart
        for a, b in product(factors[i], factors[j])
    }


def pairs_of(row: Sequence[Hashable]) -> set[Pair]:
    """Return the pairs that meet in one row."""
    return {frozenset(pair) for pair in combinations(enumerate(row), 2)}


def covering_rows(
    factors: Sequence[Sequence[Hashable]], apart: Sequence[tuple[int, int]] = ()
) -> list[tuple[Any, ...]]:
    """Start each row from a pair not yet covered and fill it with whatever covers most more of them.

    Where several values cover as many, the one used least so far keeps the rows varied.
    """
    uncovered = dict.fromkeys(sorted(all_pairs(factors, apart), key=lambda pair: sorted(map(repr, pair))))
    used: Counter[tuple[int, Hashable]] = Counter()
    chosen: dict[int, Hashable] = {}
    rows = []

    def merit(entry: tuple[int, Hashable]) -> tuple[int, int]:
        return sum(frozenset((entry, other)) in uncovered for other in chosen.items()), -used[entry]

    while uncovered:
        chosen.clear()
        chosen.update(next(iter(uncovered)))
        for i, values in enumerate(factors):
            if i not in chosen:
                _, chosen[i] = max([(i, value) for value in values], key=merit)
        row = tuple(chosen[i] for i in range(len(factors)))
        for pair in pairs_of(row):
            uncovered.pop(pair, None)
        used.update(enumerate(row))
        rows.append(row)
    return rows
