"""Find when each token is spoken, by dynamic time warping.

Among paths of equal cost, the choice is that of openai/whisper and transformers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def token_positions(fit: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return, for each token, the first position of its stretch of the best path.

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
    """Return the rows and columns of the cheapest monotonic path through a matrix.

    It leads from corner to corner.

    Cells of one antidiagonal depend only on the two before it, so each is computed at once. Three of them
    are kept, and every operation writes into existing memory: this runs beside a server's forward passes,
    which wait while Python's global lock is taken.
    """
    rows, columns = cost.shape
    flat = np.ascontiguousarray(cost).ravel()
    # float32 like transformers: among paths of nearly equal cost the same one must win.
    before_last, last, total = (np.full(rows + 1, np.inf, dtype=np.float32) for _ in range(3))
    before_last[0] = 0
    is_diagonal = np.zeros((rows + columns + 1, rows + 1), dtype=bool)  # antidiagonal x row
    is_down = np.zeros_like(is_diagonal)
    least = np.empty(rows, dtype=np.float32)
    for antidiagonal in range(2, rows + columns + 1):
        start, end = max(1, antidiagonal - columns), min(rows, antidiagonal - 1) + 1
        diagonal, down, right = before_last[start - 1 : end - 1], last[start - 1 : end - 1], last[start:end]
        goes_diagonal, goes_down = is_diagonal[antidiagonal, start:end], is_down[antidiagonal, start:end]
        cells, lesser = total[start:end], least[: end - start]
        np.less(diagonal, np.minimum(down, right, out=lesser), out=goes_diagonal)
        np.less(down, np.minimum(diagonal, right, out=lesser), out=goes_down)
        np.copyto(cells, right)
        np.copyto(cells, down, where=goes_down)
        np.copyto(cells, diagonal, where=goes_diagonal)
        first = (start - 1) * columns + antidiagonal - start - 1
        costs = flat[first : first + (end - start - 1) * (columns - 1) + 1 : max(1, columns - 1)]
        np.add(costs, cells, out=cells, casting="same_kind")
        total[0] = total[end:] = np.inf  # the borders, where an older antidiagonal had cells
        before_last, last, total = last, total, before_last
    path = []
    row, column = rows, columns
    while row > 0 or column > 0:
        path.append((row - 1, column - 1))
        if not row:
            column -= 1
        elif not column or is_down[row + column, row]:
            row -= 1
        elif is_diagonal[row + column, row]:
            row, column = row - 1, column - 1
        else:
            column -= 1
    backwards = np.array(path[::-1], dtype=np.int64)
    return backwards[:, 0], backwards[:, 1]
