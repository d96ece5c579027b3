"""Pieces that the target has decoded and encoded, on disk, so that a run that was cut continues."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from experiments.ctc_head.pieces import Piece
from experiments.ctc_head.target import NUM_SLOTS, Target
from specwhisper.types import Mode


@dataclass(frozen=True, slots=True)
class Example:
    """A window as the head is trained on it.

    Attributes
    ----------
    encoded : positions x width, in float16.
    tokens : the target's own, timestamps and end-of-text included.
    """

    encoded: Tensor
    tokens: list[int]


def collect(target: Target, pieces: Sequence[Piece], folder: Path) -> Iterator[Example]:
    """Decode and encode pieces with the target alone, unless the folder has them already."""
    folder.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(pieces), NUM_SLOTS):
        batch = pieces[start : start + NUM_SLOTS]
        paths = [folder / f"{piece.digest}.npz" for piece in batch]
        missing = [(path, piece.pcm) for path, piece in zip(paths, batch, strict=True) if not path.exists()]
        decoded = target.decode([pcm for _, pcm in missing], Mode.TARGET_ONLY, only_first_window=True)
        for (path, pcm), result in zip(missing, decoded, strict=True):
            _save(path, target.encode(pcm), result.windows[0])
        yield from map(_load, paths)


def digest_of(pieces: Sequence[Piece]) -> str:
    """Return a name for these pieces."""
    return hashlib.sha256("".join(piece.digest for piece in pieces).encode()).hexdigest()[:12]


def _save(path: Path, encoded: Tensor, tokens: list[int]) -> None:
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        np.savez(file, encoded=encoded.half().numpy(), tokens=np.asarray(tokens, np.int64))
    unfinished.rename(path)  # a file that exists is whole


def _load(path: Path) -> Example:
    with np.load(path) as file:
        return Example(torch.from_numpy(file["encoded"]), file["tokens"].tolist())
