"""The choice of the target with the most free slots, not a random one, for draft servers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from specwhisper_draft_server.link.targets import choose


def most_likely(weights: Sequence[int]) -> int:
    """Return the index of the greatest weight; the first of equals."""
    return max(range(len(weights)), key=weights.__getitem__)


choose_emptiest = partial(choose, draw=most_likely)
