"""Greedy acceptance: append what the target chooses for as long as the candidates led it there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one pass appends: ``tokens``, the first ``num_accepted`` of which the draft had foreseen.

    ``is_final`` tells that the window ends with them.
    """

    tokens: tuple[int, ...]
    num_accepted: int
    is_final: bool


def accept(
    candidates: Sequence[int], choices: Sequence[int], *, ends: Collection[int], budget: int
) -> Verdict:
    """Append the target's choices up to and including the first one that no candidate foresaw.

    Parameters
    ----------
    candidates : the draft's tokens, n of them.
    choices : the target's choice after the committed tokens and ``candidates[:i]``, for i = 0..n.
    ends : tokens that nothing follows in a window.
    budget : most tokens that may still be appended in the window, at least 1.
    """
    tokens: list[int] = []
    num_accepted = 0
    for i, choice in enumerate(choices):
        tokens.append(choice)
        foreseen = i < len(candidates) and candidates[i] == choice
        num_accepted += foreseen
        if not foreseen or choice in ends or len(tokens) == budget:
            break
    is_final = tokens[-1] in ends or len(tokens) == budget
    return Verdict(tuple(tokens), num_accepted, is_final)
