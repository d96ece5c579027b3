"""How many candidates a forward pass should have."""

from __future__ import annotations

from functools import lru_cache

MAX_REACH = 64  # tokens of a hint in a forward pass
MIN_CHANCE = 0.1  # that the last of them is right


@lru_cache(maxsize=4096)
def num_worthwhile(first: float, later: float, token_share: float) -> int:
    """Return how many candidates make the time of a token shortest.

    Parameters
    ----------
    first, later : how often the first one is right, and how often each later one is if those before it are.
    token_share : time of a token, over the time of a forward pass without tokens.
    """
    chance, num_expected = first, 1.0
    for num in range(MAX_REACH):
        time_so_far = 1 + token_share * (1 + num)  # one token is the session's own
        if chance < MIN_CHANCE or chance * time_so_far < token_share * num_expected:
            return num
        num_expected += chance
        chance *= later
    return MAX_REACH
