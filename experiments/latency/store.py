"""The file of a grid: a header line of JSON, then a line for each run; more can always be added."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.common.audio.conditions import Condition
from experiments.latency.cells import Arm, Cell
from specwhisper.errors import InvalidRequest
from specwhisper.types import Mode

FORMAT = 6
SAME = ("pair", "samples", "network", "texts")  # must match to continue
MAX_NETWORK_SHARE = 0.05  # of a core; a busier network distorts the measurement


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

    def line(self) -> dict[str, Any]:
        arm = self.cell.arm
        cell = {"condition": self.cell.condition, "rtt_ms": self.cell.rtt_ms, "mode": arm.mode}
        cell |= {"gamma": arm.gamma, "has_hint": arm.has_hint}
        return {"repeat": self.repeat, **cell, "sample": self.sample, **self.facts}

    @staticmethod
    def of(line: dict[str, Any]) -> Run:
        names = ("repeat", "condition", "rtt_ms", "mode", "gamma", "has_hint", "sample")
        repeat, condition, rtt_ms, mode, gamma, has_hint, sample = (line.pop(name) for name in names)
        cell = Cell(Condition(condition), rtt_ms, Arm(Mode(mode), gamma, has_hint))
        return Run(repeat, cell, sample, line)


@dataclass(frozen=True)
class Grid:
    """The contents of a file.

    Attributes
    ----------
    header : pair, recordings with their texts, what their forward passes cost, machine.
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
        """Read the file; leave out a last line that was not completely written."""
        try:
            header, *lines = (json.loads(line) for line in self._path.read_bytes().split(b"\n")[:-1])
            if header["format"] != FORMAT:
                raise ValueError(f"it is of format {header['format']}, and only {FORMAT} can be read")
            return Grid(header, tuple(map(Run.of, lines)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidRequest(
                f"{self._path} holds no readable grid ({error}): pass another file with --out."
            ) from error

    def begin(self, header: dict[str, Any]) -> Grid:
        """Continue a grid of the same pair and recordings, or create one; refuse any other."""
        if not self._path.exists():
            self._path.write_text(json.dumps({"format": FORMAT, **header}) + "\n")
        found = self.load()
        for name in SAME:
            if found.header[name] != json.loads(json.dumps(header[name])):
                raise InvalidRequest(f"{self._path} holds a grid with other {name}: pass another file.")
        content = self._path.read_bytes()
        self._path.write_bytes(content[: content.rfind(b"\n") + 1])
        return found

    def append(self, runs: Iterable[Run]) -> None:
        with self._path.open("a") as file:
            file.writelines(json.dumps(run.line()) + "\n" for run in runs)
