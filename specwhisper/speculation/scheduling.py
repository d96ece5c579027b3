"""Choose the sessions of the next forward pass, and how many candidates of each.

A forward pass reads the model's weights once for all sessions, so usually all take part. The number of tokens
is limited, so that no session waits for a forward pass that takes too long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """Tokens that a session wants to append.

    Attributes
    ----------
    num_needed : tokens that its slot lacks, at least one.
    num_candidates : candidates to verify after them.
    num_missed : forward passes since its last one in which it was runnable and took no part.
    """

    num_needed: int
    num_candidates: int
    num_missed: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A request that takes part, by its index, and how many of its candidates do."""

    index: int
    num_candidates: int


def next_batch(requests: Sequence[Request], max_tokens: int) -> list[Part]:
    """Choose the sessions of the next forward pass, in the order of the requests.

    Requests that missed most forward passes have priority. Candidates beyond ``max_tokens`` are left out, but
    never the tokens that a slot lacks: more than ``max_tokens`` only fit if the first request needs them.
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
