"""When each token is spoken: dynamic time warping through a matrix of tokens and moments.

Among paths of equal cost the one is chosen that openai/whisper and transformers choose.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DIAGONAL, DOWN, RIGHT = 0, 1, 2


def token_positions(fit: NDArray[np.float64]) -> NDArray[np.int64]:
    """Give, for each token, the first position of its stretch of the best path.

    Parameters
    ----------
    fit : how well each token fits each position, tokens x positions.
    """
    if not fit.size:
        return np.zeros(len(fit), dtype=np.int64)
    text, time = dynamic_time_warping(-fit)
    is_first = np.diff(text, prepend=-1) != 0
    return np.asarray(np.maximum(time[is_first], 0))


def dynamic_time_warping(cost: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Give the cheapest monotonic path through a matrix, corner to corner: its rows and its columns.

    Cells of one antidiagonal depend only on the two before it, so each is computed at once.
    """
    rows, columns = cost.shape
    # float32 like transformers: among paths of nearly equal cost the same one must win.
    total = np.full((rows + 1, columns + 1), np.inf, dtype=np.float32)
    total[0, 0] = 0
    came = np.full((rows + 1, columns + 1), RIGHT, dtype=np.int8)
    came[:, 0] = DOWN
    for diagonal in range(2, rows + columns + 1):
        i = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, down, right = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        is_both = (both < down) & (both < right)
        is_down = (down < both) & (down < right)
        came[i, j] = np.where(is_both, DIAGONAL, np.where(is_down, DOWN, RIGHT))
        total[i, j] = cost[i - 1, j - 1] + np.where(is_both, both, np.where(is_down, down, right))
    came[0, :] = RIGHT
    path = []
    row, column = rows, columns
    while row > 0 or column > 0:
        path.append((row - 1, column - 1))
        step = came[row, column]
        row -= step != RIGHT
        column -= step != DOWN
    backwards = np.array(path[::-1], dtype=np.int64)
    return backwards[:, 0], backwards[:, 1]
