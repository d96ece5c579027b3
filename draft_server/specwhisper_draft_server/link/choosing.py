"""Which of several targets takes a session: at random, the likelier the more room it has."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

Draw = Callable[[Sequence[int]], int]  # an index, at random by these weights


@dataclass(frozen=True, slots=True)
class Place:
    """A target that has room.

    Attributes
    ----------
    lease : the right to open a session there, where one is asked for.
    """

    address: str
    lease: str = ""
    free_slots: int = 0


def draw(weights: Sequence[int]) -> int:
    """Return an index at random, as likely as its weight."""
    return random.choices(range(len(weights)), weights)[0]


def choose(
    places: Sequence[Place], opening: Mapping[str, int], avoid: Collection[str] = (), draw: Draw = draw
) -> Place:
    """Return one of the places, by chance in proportion to its free slots.

    Chance keeps several draft servers, whose answers are equally old, from all choosing the same target.

    Parameters
    ----------
    opening : sessions that this server is opening, by address: they may not be counted there yet.
    avoid : addresses that are chosen only where there is no other.
    """
    places = [place for place in places if place.address not in avoid] or places
    weights = [max(0, place.free_slots - opening.get(place.address, 0)) for place in places]
    if not any(weights):  # each may have been counted already, so all are still worth a try
        weights = [max(1, place.free_slots) for place in places]
    return places[draw(weights)]
