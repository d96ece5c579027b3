"""The few sizes that a GPU's forward passes are padded to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

# Queries of one attention program, all of one row: the fewest that tensor cores multiply. It is the same in
# every bucket, so a token's attention does not depend on who shares its pass.
BLOCK_TOKENS = 16
TOKENS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
BLOCKS = (1, 2, 4, 8, 16, 32, 64, 128)


class Bucket(NamedTuple):
    """Tokens of all rows, and blocks of up to 16 tokens of one row."""

    num_tokens: int
    num_blocks: int


def num_blocks(width: int) -> int:
    """Return the blocks of a row."""
    return -(-width // BLOCK_TOKENS)


def bucket_for(widths: Sequence[int]) -> Bucket:
    """Return the smallest bucket that rows of these widths fit in.

    Raises
    ------
    ValueError : if they fit in none; see :func:`divide`.
    """
    tokens, blocks = sum(widths), sum(map(num_blocks, widths))
    if tokens > TOKENS[-1] or blocks > BLOCKS[-1]:
        raise ValueError(f"{tokens} tokens in {blocks} blocks are more than one forward pass takes")
    return Bucket(TOKENS[bisect_left(TOKENS, tokens)], BLOCKS[bisect_left(BLOCKS, blocks)])


def divide(widths: Sequence[int]) -> list[range]:
    """Divide rows into as few runs of neighbours as fit in a bucket each."""
    parts, first, tokens, blocks = [], 0, 0, 0
    for row, width in enumerate(widths):
        tokens, blocks = tokens + width, blocks + num_blocks(width)
        if row > first and (tokens > TOKENS[-1] or blocks > BLOCKS[-1]):
            parts.append(range(first, row))
            first, tokens, blocks = row, width, num_blocks(width)
    return [*parts, range(first, len(widths))]


def buckets_up_to(num_rows: int, width: int) -> Iterator[Bucket]:
    """Yield every bucket that rows of up to ``width`` tokens can need."""
    most_blocks = min(num_rows * num_blocks(width), BLOCKS[-1])
    most_tokens = min(num_rows * width, TOKENS[-1])
    fewest = 1  # blocks of a smaller bucket, and one more
    for blocks in BLOCKS:
        if fewest > most_blocks:
            return
        held = min(blocks, most_blocks) * min(width, BLOCK_TOKENS)
        last = bisect_left(TOKENS, min(held, most_tokens))
        for tokens in TOKENS[bisect_left(TOKENS, fewest) : last + 1]:
            yield Bucket(tokens, blocks)
        fewest = blocks + 1
