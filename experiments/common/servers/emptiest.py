"""Make a draft server choose the target with the most free slots, not a random one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from specwhisper_draft_server.link import targets
from specwhisper_draft_server.link.targets import choose


def most_likely(weights: Sequence[int]) -> int:
    """Return the index of the greatest weight; the first of equals."""
    return max(range(len(weights)), key=weights.__getitem__)


choose_emptiest = partial(choose, draw=most_likely)


def always_choose_emptiest() -> None:
    """Make this process's draft server choose so, where a fault is meant for one of several targets."""
    targets.choose = choose_emptiest  # type: ignore[assignment]
