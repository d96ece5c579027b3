"""Blocks as a bad network or a hostile draft delivers them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specwhisper.types import Candidates

KINDS = ("normal", "noisy", "garbage", "empty", "duplicated", "delayed", "shuffled")
LOSSY = "lost"  # a target that waits for candidates then waits for its timeout of seconds


class Interference:
    """Replaces each block by the blocks that arrive.

    ``kind`` is one of :data:`KINDS`, or :data:`LOSSY`.
    """

    def __init__(self, kind: str, seed: int, *, vocabulary_size: int) -> None:
        self._arrive = getattr(self, f"_{kind}")
        self._random = np.random.default_rng(seed)
        self._size = vocabulary_size
        self._kept: list[Candidates] = []
        self.num_lost = 0

    def __call__(self, block: Candidates) -> Sequence[Candidates]:
        return self._arrive(block)

    def _normal(self, block: Candidates) -> Sequence[Candidates]:
        return [block]

    def _noisy(self, block: Candidates) -> Sequence[Candidates]:
        noise = self._random.integers(0, self._size, len(block.tokens)).tolist()
        is_wrong = self._random.random(len(block.tokens)) < 0.3
        tokens = [n if wrong else t for t, n, wrong in zip(block.tokens, noise, is_wrong, strict=True)]
        return [replace(block, tokens=tuple(tokens))]

    def _garbage(self, block: Candidates) -> Sequence[Candidates]:
        """Add a block of random position and tokens, and make the block's own random."""
        base, known, length = self._random.integers(0, 60, 3).tolist()
        tokens = tuple(self._random.integers(0, self._size, length).tolist())
        window_id = int(self._random.integers(0, 3))
        return [
            Candidates(window_id, base, known, tokens),
            replace(block, tokens=tokens[: len(block.tokens)]),
        ]

    def _empty(self, block: Candidates) -> Sequence[Candidates]:
        return [replace(block, tokens=())]

    def _duplicated(self, block: Candidates) -> Sequence[Candidates]:
        """Send the block twice, then the previous block again."""
        earlier, self._kept = self._kept, [block]
        return [block, block, *earlier]

    def _lost(self, block: Candidates) -> Sequence[Candidates]:
        is_lost = self._random.random() < 0.4
        self.num_lost += is_lost
        return [] if is_lost else [block]

    def _delayed(self, block: Candidates) -> Sequence[Candidates]:
        """Delay some blocks until the next one; an empty block takes their turn."""
        self._kept.append(block)
        if len(self._kept) == 1 and self._random.random() < 0.5:
            return [replace(block, tokens=())]
        late, self._kept = self._kept, []
        return late

    def _shuffled(self, block: Candidates) -> Sequence[Candidates]:
        """Send the last four blocks in random order."""
        self._kept = [*self._kept[-3:], block]
        return [self._kept[i] for i in self._random.permutation(len(self._kept))]
