"""A sweep on disk: one line of JSON for what it is, then one for every run; an interrupted one goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.latency.cells import Cell
from specwhisper.errors import InvalidRequest
from specwhisper.types import Mode

FORMAT = 1


@dataclass(frozen=True)
class Run:
    """A recording, transcribed once.

    Attributes
    ----------
    facts : what was measured, as it stands in the file.
    """

    repeat: int
    cell: Cell
    sample: str
    facts: dict[str, Any]

    @property
    def time_per_token_s(self) -> float:
        """What the sweep is about."""
        return float(self.facts["time_per_token_s"])

    @property
    def statistics(self) -> dict[str, Any]:
        """What the session counted."""
        told: dict[str, Any] = self.facts["statistics"]
        return told


@dataclass(frozen=True)
class Sweep:
    """What was swept, and what has been measured so far.

    Attributes
    ----------
    header : conditions, models, machine, and ``step_s``, a pass of the target alone.
    """

    header: dict[str, Any]
    runs: tuple[Run, ...]

    @property
    def step_s(self) -> float:
        """A pass of the target alone, which round trips are given in."""
        return float(self.header["step_s"])

    @property
    def round_trips_s(self) -> list[float]:
        """The round trips that cells name by their place."""
        return [float(round_trip_s) for round_trip_s in self.header["round_trips_s"]]


class Store:
    """The file of a sweep."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Sweep:
        """Read what there is."""
        try:
            lines = [json.loads(line) for line in self._path.read_text().splitlines()]
            header, *runs = lines
            if header["format"] != FORMAT:
                raise ValueError("it is of another format")
            return Sweep(header, tuple(_run(line) for line in runs))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidRequest(
                f"{self._path} holds no sweep ({error}): measure one there first."
            ) from error

    def begin(self, header: dict[str, Any]) -> Sweep:
        """Go on with a sweep of the same things, or begin one; refuse what is of other things."""
        if not self._path.exists():
            self._append([{"format": FORMAT, **header}])
            return self.load()
        found = self.load()
        for name in ("models", "conditions", "asked", "network"):
            if found.header[name] != header[name]:
                raise InvalidRequest(
                    f"{self._path} has a sweep of other {name} ({found.header[name]}): choose another file."
                )
        return found

    def append(self, run: Run) -> None:
        """Add a run; it is on disk when this returns."""
        cell = {"mode": run.cell.mode, "gamma": run.cell.gamma}
        cell |= {"round_trip": run.cell.round_trip, "cores": run.cell.cores}
        self._append([{"repeat": run.repeat, **cell, "sample": run.sample, **run.facts}])

    def _append(self, lines: Iterable[dict[str, Any]]) -> None:
        with self._path.open("a") as file:
            for line in lines:
                file.write(json.dumps(line) + "\n")


def _run(line: dict[str, Any]) -> Run:
    names = ("repeat", "mode", "gamma", "round_trip", "cores", "sample")
    repeat, mode, gamma, round_trip, cores, sample = (line.pop(name) for name in names)
    return Run(repeat, Cell(Mode(mode), gamma, round_trip, cores), sample, line)
