"""The file of a grid: a header, then each run; more can always be added."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.latency.cells import Cell
from specwhisper.errors import InvalidRequest

SAME = ("pair", "samples", "texts")  # must match to continue
MAX_NETWORK_SHARE = 0.05  # share of a core; a busier network distorts the measurement


@dataclass(frozen=True)
class Run:
    """One transcription of a recording in a cell; ``facts`` are the measured values."""

    repeat: int
    cell: Cell
    sample: str
    facts: dict[str, Any]

    @property
    def counts(self) -> bool:
        """Whether the network's process used little of its core; otherwise the run is not evaluated."""
        return bool(self.facts["network_share"] <= MAX_NETWORK_SHARE)

    @property
    def statistics(self) -> dict[str, Any]:
        return dict(self.facts["statistics"])

    def __str__(self) -> str:
        return f"{self.cell}, {self.sample}, repeat {self.repeat + 1}"


@dataclass(frozen=True)
class Grid:
    """The contents of a file.

    Attributes
    ----------
    header : pair, recordings with their texts and their trace, what their forward passes cost, machine.
    """

    header: dict[str, Any]
    runs: tuple[Run, ...]

    @property
    def done(self) -> set[tuple[int, Cell, str]]:
        return {(run.repeat, run.cell, run.sample) for run in self.runs if run.counts}

    @property
    def different(self) -> list[Run]:
        """Runs whose text differs from the target's, including those that do not count."""
        return [run for run in self.runs if not run.facts["is_same"]]


class Store:
    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Grid:
        records = []
        with self._path.open("rb") as file:
            while file.peek(1):
                records.append(pickle.load(file))
        return Grid(records[0], tuple(records[1:]))

    def begin(self, header: dict[str, Any]) -> Grid:
        """Continue a grid of the same pair and recordings, or create one; refuse any other."""
        if not self._path.exists():
            self.append(header)
        found = self.load()
        for name in SAME:
            if found.header[name] != header[name]:
                raise InvalidRequest(f"{self._path} holds a grid with other {name}: pass another file.")
        return found

    def append(self, record: object) -> None:
        with self._path.open("ab") as file:
            file.write(pickle.dumps(record))
