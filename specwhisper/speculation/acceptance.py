"""Greedy acceptance: keep candidates up to the first that the target rejects.

Lossy acceptance happens earlier: ``specwhisper.model.choosing`` overwrites the target's choice with each
candidate it keeps, so this equality test accepts it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Verdict(NamedTuple):
    """The tokens that a forward pass appends.

    Attributes
    ----------
    tokens : the accepted prefix, then the correction token unless the prefix ends the window; never empty.
    """

    tokens: tuple[int, ...]
    num_accepted: int
    is_final: bool


def accept(
    candidates: Sequence[int], choices: Sequence[int], *, ends: Collection[int], budget: int
) -> Verdict:
    """Return the target's choices up to the first that differs from its candidate.

    Parameters
    ----------
    candidates : the draft's tokens, n of them.
    choices : the target's choice after the committed tokens and ``candidates[:i]``, for i = 0..n.
    ends : tokens that end a window.
    budget : most tokens that may still be appended in the window, at least 1.
    """
    tokens: list[int] = []
    num_accepted = 0
    for i, choice in enumerate(choices):
        tokens.append(choice)
        is_accepted = i < len(candidates) and candidates[i] == choice
        num_accepted += is_accepted
        if not is_accepted or choice in ends or len(tokens) == budget:
            break
    is_final = tokens[-1] in ends or len(tokens) == budget
    return Verdict(tuple(tokens), num_accepted, is_final)
