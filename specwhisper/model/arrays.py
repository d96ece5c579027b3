"""Operations on NumPy arrays and torch tensors that the array API standard lacks.

Importing this module loads no torch. On a CPU all arrays are NumPy's; tensors are on a GPU, but in tests.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from array_api_compat import is_numpy_array
from numpy.typing import ArrayLike

Array: TypeAlias = Any  # NDArray or Tensor; the type of a result is that of the arguments
Device: TypeAlias = Any  # a torch.device, or what NumPy's arrays are on: "cpu" or None


def to_device(numbers: ArrayLike, target: Device) -> Array:
    """Make an array on a device without waiting for a GPU's earlier work."""
    if target is None or isinstance(target, str):
        return np.asarray(numbers)
    from specwhisper.model.pytorch import operations  # loads torch

    return operations.to_device(numbers, target)


def windows(x: Array, width: int) -> Array:
    """Return runs of adjacent values, without a copy.

    Values are ... x n, runs are ... x (n - width + 1) x width.
    """
    if is_numpy_array(x):
        return np.lib.stride_tricks.sliding_window_view(x, width, axis=-1)
    return x.unfold(-1, width, 1)


def take_rows(x: Array, rows: Array) -> Array:
    return x[rows] if is_numpy_array(x) else x.index_select(0, rows)


def take_along_rows(x: Array, columns: Array) -> Array:
    """Return one value of each row: rows x 1, as ``columns``."""
    return np.take_along_axis(x, columns, axis=1) if is_numpy_array(x) else x.gather(1, columns)


def add_rows(x: Array, table: Array, rows: Array) -> None:
    """Add a row of a table to each row, in place."""
    if is_numpy_array(x):
        for row, i in zip(x, rows.tolist(), strict=True):
            row += table[i]  # one by one, without a copy of the table's rows
    else:
        x += table.index_select(0, rows)


def fill(x: Array, is_filled: Array, value: float) -> None:
    """Set values of a vector, or whole rows, in place."""
    if is_numpy_array(x):
        x[is_filled] = value
    else:
        x.masked_fill_(is_filled.view(-1, *[1] * (x.ndim - 1)), value)


def softmax(x: Array) -> Array:
    if not is_numpy_array(x):
        return x.softmax(dim=-1)
    probs = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
    probs /= probs.sum(axis=-1, keepdims=True)
    return probs


def logsumexp(x: Array) -> Array:
    """Return the logarithm of each row's sum of exponentials: rows x 1."""
    if not is_numpy_array(x):
        return x.logsumexp(dim=-1, keepdim=True)
    totals = np.empty((len(x), 1), x.dtype)
    terms = np.empty(x.shape[1], x.dtype)  # one row's, which stay in the cache
    for i, row in enumerate(x):
        most = row.max(initial=-np.inf)
        if most == -np.inf:
            totals[i] = most
        else:
            np.exp(np.subtract(row, most, out=terms), out=terms)
            totals[i] = most + math.log(terms.sum())
    return totals


def top_two(x: Array) -> tuple[Array, Array, Array]:
    """Return each row's best column, its value and the second best value: rows x 1.

    The lowest of equal columns is the best. NumPy's rows are written to, and restored.
    """
    if not is_numpy_array(x):
        best = x.argmax(dim=1, keepdim=True)
        first = x.gather(1, best)
        return best, first, x.scatter(1, best, -math.inf).amax(dim=-1, keepdim=True)
    rows, best = np.arange(len(x)), x.argmax(axis=1)
    first = x[rows, best]
    x[rows, best] = -np.inf
    second = x.max(axis=1)
    x[rows, best] = first
    return best[:, None], first[:, None], second[:, None]


def kth_largest(x: Array, k: int) -> Array:
    """Return the k-th largest value of a vector."""
    return np.partition(x, -k)[-k] if is_numpy_array(x) else x.topk(k).values[-1]


def sort(x: Array) -> tuple[Array, Array]:
    """Return a float32 vector in ascending order, and its values' indices, the lowest of equal ones last."""
    if not is_numpy_array(x):
        ascending, order = x.flip(0).sort(stable=True)
        return ascending, len(x) - 1 - order
    # Pairs of value and index are sorted in a tenth of the time of a stable sort. A float's bits, all but the
    # sign inverted below 0, are in the order of its value. Adding 0 turns -0 into 0.
    bits = (x + np.float32(0)).view(np.int32)
    bits ^= (bits >> 31) & 0x7FFFFFFF
    last = len(x) - 1
    pairs = (bits.astype(np.int64) << 32) | np.arange(last, -1, -1)
    pairs.sort()
    order = last - (pairs & 0xFFFFFFFF)
    return x[order], order


def unsort(values: Array, order: Array) -> Array:
    """Return values at the indices that :func:`sort` returned."""
    if not is_numpy_array(values):
        return values.new_zeros(values.shape).scatter(0, order, values)
    unsorted = np.empty_like(values)
    unsorted[order] = values
    return unsorted


def cumulative_sum(x: Array) -> Array:
    """Return the sums of a vector's first values, added in double precision on a CPU."""
    if is_numpy_array(x):
        return x.cumsum(dtype=np.float64).astype(x.dtype)
    return x.cumsum(dim=-1)
