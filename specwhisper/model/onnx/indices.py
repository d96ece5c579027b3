"""Indices of a forward pass: where its tokens are in the graph's inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# The runtime multiplies by up to this many queries in one way; more would change the order of its sums.
MAX_QUERIES = 16
MIN_QUERIES = 2  # for a single one it has another way
ROWS_OF_A_BLOCK = 128  # a product's: a single row after the last full block has another sum


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The sizes of a forward pass, and the tokens whose results are wanted.

    Attributes
    ----------
    slots : ascending.
    widths : tokens of each row.
    wanted : tokens whose results are returned, as (row, index in the row).
    """

    slots: tuple[int, ...]
    widths: tuple[int, ...]
    wanted: tuple[tuple[int, int], ...]

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows, with one more where a product needs it."""
        return without_lone_row(sum(self.widths))


@dataclass(frozen=True, slots=True)
class Indices:
    """Inputs of :class:`.decoder_graph.DecoderGraph` that a shape determines."""

    padded: NDArray[np.int64]
    unpadded: NDArray[np.int64]
    num_queries: NDArray[np.int32]
    rows: tuple[NDArray[np.int64], ...]
    gathered: NDArray[np.int64]
    wanted: NDArray[np.int64]

    @classmethod
    def of(cls, shape: BatchShape) -> Indices:
        """Compute the indices of a shape.

        A slot between two slots of the forward pass has no queries. A lone token stands twice in the batch.
        """
        widths, first_slot = shape.widths, shape.slots[0]
        starts = np.concatenate([[0], np.cumsum(widths)])
        num_slots = shape.slots[-1] + 1 - first_slot
        num_queries = max(map(without_lone_row, widths))
        padded = np.zeros((num_slots, num_queries), np.int64)
        queries_of = np.zeros(num_slots, np.int32)
        unpadded, gathered, rows, num_gathered = [], [], [], 0
        for slot, width, start in zip(shape.slots, widths, starts, strict=False):
            index = slot - first_slot
            padded[index, :width] = np.arange(start, start + width)
            padded[index, width:] = start + width - 1
            queries_of[index] = without_lone_row(width)
            unpadded.append(index * num_queries + np.arange(width, dtype=np.int64))
            pieces = _pieces(width)
            rows.append(start + np.minimum(pieces, width - 1))
            gathered.append(num_gathered + np.arange(width, dtype=np.int64))
            num_gathered += pieces.size
        wanted = np.array([starts[row] + index for row, index in shape.wanted], np.int64)
        return cls(
            padded=padded,
            unpadded=_repeat_if_lone(np.concatenate(unpadded)),
            num_queries=queries_of,
            rows=tuple(rows),
            gathered=_repeat_if_lone(np.concatenate(gathered)),
            wanted=_repeat_if_lone(wanted),
        )


def _pieces(width: int) -> NDArray[np.int64]:
    """Return a row's tokens in pieces of equal length, the last ones beyond the row: pieces x queries."""
    length = min(max(width, MIN_QUERIES), MAX_QUERIES)
    num_pieces = -(-width // length)
    return np.arange(num_pieces * length, dtype=np.int64).reshape(num_pieces, length)


def without_lone_row(num_rows: int) -> int:
    """Return a number of rows that leaves no single one after the last full block."""
    return num_rows + (num_rows % ROWS_OF_A_BLOCK == 1)


def _repeat_if_lone(indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Repeat the last index if it would be alone in its block."""
    return np.pad(indices, (0, without_lone_row(len(indices)) - len(indices)), mode="edge")
