"""A draft server whose choice of targets is certain: the one with the most room, not one drawn by it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from specwhisper_draft_server.link import targets
from specwhisper_draft_server.link.choosing import choose


def most_likely(weights: Sequence[int]) -> int:
    """Return the index of the greatest weight; of equals the first."""
    return max(range(len(weights)), key=weights.__getitem__)


choose_emptiest = partial(choose, draw=most_likely)


def always_choose_emptiest() -> None:
    """Have this process's draft server choose so, where faults are meant for one target of several."""
    targets.choose = choose_emptiest  # type: ignore[assignment]
