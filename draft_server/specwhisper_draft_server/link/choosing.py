"""Choose the target of a session: at random, in proportion to free slots."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

Draw = Callable[[Sequence[int]], int]  # returns a random index, by weights


@dataclass(frozen=True, slots=True)
class TargetOffer:
    """A target that has a free slot for a session.

    Attributes
    ----------
    address : of the target, as HOST:PORT.
    lease : to open the session with; empty where the target asks for none.
    free_slots : sessions that the target can still take.
    is_standby : whether it is to be taken only if another target is lost.
    """

    address: str
    lease: str = ""
    free_slots: int = 0
    is_standby: bool = False


def draw(weights: Sequence[int]) -> int:
    """Return a random index, with probabilities in proportion to the weights."""
    return random.choices(range(len(weights)), weights)[0]


def choose(
    offers: Sequence[TargetOffer],
    opening: Mapping[str, int],
    avoid: Collection[str] = (),
    draw: Draw = draw,
) -> TargetOffer:
    """Return one of the offers, at random in proportion to free slots.

    Draft servers see equally old numbers. Without chance all would choose the same target.

    Parameters
    ----------
    opening : sessions that this server is opening, by address; ``free_slots`` may not count them yet.
    avoid : addresses to choose only if there is no other.
    """
    offers = [offer for offer in offers if offer.address not in avoid] or offers
    weights = [max(0, offer.free_slots - opening.get(offer.address, 0)) for offer in offers]
    if not any(weights):  # free_slots may have counted them already, so each is worth a try
        weights = [max(1, offer.free_slots) for offer in offers]
    return offers[draw(weights)]
