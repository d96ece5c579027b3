"""Weights of a checkpoint that are arrays in memory, in no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from specwhisper.model.checkpoints.weights import Weights


def weights_in_memory(arrays: Mapping[str, NDArray[Any]]) -> Weights:
    """Return arrays as weights; uint16 are the bits of bfloat16."""
    return Weights({name: _InMemory(array) for name, array in arrays.items()})


@dataclass(frozen=True, slots=True)
class _InMemory:
    array: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def read(self) -> NDArray[Any]:
        return self.array
