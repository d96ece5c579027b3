"""Who takes part in the target's next pass, and how many of its candidates.

A pass reads the model's weights once for everybody, so usually everybody takes part. Tokens are rationed, so
that nobody's answer waits for a pass that is too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """What a session would feed.

    Attributes
    ----------
    num_needed : tokens that its slot lacks, at least one.
    num_candidates : candidates that it would have verified behind them.
    num_missed : passes that it had something for and took no part in, since the last that it took part in.
    """

    num_needed: int
    num_candidates: int
    num_missed: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A request (by its place among all) that takes part, and how many of its candidates do."""

    index: int
    num_candidates: int


def next_batch(requests: Sequence[Request], max_tokens: int) -> list[Part]:
    """Choose the next pass, in the order of the requests.

    Who has missed most comes first. Candidates are cut where the tokens are used up; what a slot lacks is
    not, so a pass holds more than ``max_tokens`` only if its first request alone does.
    """
    parts: list[Part] = []
    room = max_tokens
    for index in sorted(range(len(requests)), key=lambda index: -requests[index].num_missed):
        request = requests[index]
        if parts and request.num_needed > room:
            continue
        room -= request.num_needed
        num_candidates = max(0, min(request.num_candidates, room))
        room -= num_candidates
        parts.append(Part(index, num_candidates))
    return sorted(parts, key=lambda part: part.index)
