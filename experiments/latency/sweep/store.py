"""A sweep on disk: one line of JSON for what it is, then one for every run; an interrupted one goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.latency.cells import Cell, cells_of
from experiments.latency.networks.conditions import Conditions
from experiments.latency.sweep.origin import Origin
from experiments.latency.terms import MAX_NETWORK_SHARE
from specwhisper.errors import InvalidRequest
from specwhisper.types import Mode

FORMAT = 2
SAME = ("models", "conditions", "asked", "network")  # what a sweep that goes on has in common with its file
SCORES = ("log_probs", "margins", "no_speech_prob", "draft_log_probs", "continuation_log_probs")


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

    @property
    def counts(self) -> bool:
        """Whether the network itself left enough of its core; else the run is kept, but not used."""
        return bool(self.facts["network_share"] <= MAX_NETWORK_SHARE)

    @property
    def origin(self) -> Origin:
        """The code that was measured, and on what."""
        return Origin.of(self.facts)

    def __str__(self) -> str:
        return f"{self.cell}, round trip {self.cell.round_trip + 1}, {self.sample}, repeat {self.repeat + 1}"


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

    @property
    def conditions(self) -> Conditions:
        """The network at every round trip."""
        return Conditions(**self.header["conditions"])

    @cached_property
    def asked_cells(self) -> list[Cell]:
        """What was to be measured, in each repeat."""
        asked = self.header["asked"]
        modes = [Mode(name) for name in asked["modes"]]
        return cells_of(modes, asked["gammas"], len(self.round_trips_s), asked["max_cores"])

    @property
    def counted(self) -> Sweep:
        """The same with the runs that count."""
        return replace(self, runs=tuple(run for run in self.runs if run.counts))

    @property
    def done(self) -> set[tuple[int, Cell, str]]:
        """Repeat, cell and recording of what need not be measured again."""
        return {(run.repeat, run.cell, run.sample) for run in self.runs if run.counts}

    @property
    def different(self) -> list[Run]:
        """Runs whose text was not the target's, those that do not count too."""
        return [run for run in self.runs if not run.facts["is_same"]]


class Store:
    """The file of a sweep."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Sweep:
        """Read what there is; what was being written when a sweep was killed is left out."""
        try:
            lines = [json.loads(line) for line in self._path.read_bytes().split(b"\n")[:-1]]
            header, *runs = lines
            if header["format"] != FORMAT:
                raise ValueError(f"it is of format {header['format']}, and only {FORMAT} is read")
            return Sweep(header, tuple(_run(line) for line in runs))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidRequest(
                f"{self._path} holds no sweep that can be read ({error}): name another file, or measure one "
                "first."
            ) from error

    def begin(self, header: dict[str, Any]) -> Sweep:
        """Go on with a sweep of the same things, or begin one; refuse what is of other things."""
        try:
            if not self._path.exists() or not self._path.stat().st_size:
                self._create(json.dumps({"format": FORMAT, **header}) + "\n")
                return self.load()
            found = self.load()
            self._refuse_other(found.header, header)
            self._drop_torn_line()
        except OSError as error:
            raise InvalidRequest(f"{self._path} cannot be written ({error}): name another file.") from error
        return found

    def append(self, run: Run) -> None:
        """Add a run; it is in the file when this returns."""
        cell = {"mode": run.cell.mode, "gamma": run.cell.gamma}
        cell |= {"round_trip": run.cell.round_trip, "cores": run.cell.cores}
        line = json.dumps({"repeat": run.repeat, **cell, "sample": run.sample, **run.facts})
        with self._path.open("a") as file:
            file.write(line + "\n")

    def _create(self, text: str) -> None:
        """Write the first line, or nothing of it."""
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_text(text)
        beside.replace(self._path)

    def _refuse_other(self, found: dict[str, Any], header: dict[str, Any]) -> None:
        for name in SAME:
            if found[name] != header[name]:
                raise InvalidRequest(
                    f"{self._path} has a sweep of other {name} ({found[name]}): choose another file."
                )
        if _written(found["trace"]) != _written(header["trace"]):
            raise InvalidRequest(
                f"{self._path} has a sweep of another trace: the models or recordings of these names are not "
                "what they were, or write something else. Choose another file."
            )
        if found["texts"] != header["texts"]:
            raise InvalidRequest(
                f"{self._path} has a sweep in which the target alone wrote another text: choose another file."
            )

    def _drop_torn_line(self) -> None:
        content = self._path.read_bytes()
        with self._path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def _written(trace: str) -> dict[str, Any]:
    """Give a trace without its scores, whose last digits may differ from one recording of it to the next."""
    told: dict[str, Any] = json.loads(trace)
    decodings = [{n: v for n, v in one.items() if n not in SCORES} for one in told["decodings"]]
    return {**told, "decodings": decodings}


def _run(line: dict[str, Any]) -> Run:
    names = ("repeat", "mode", "gamma", "round_trip", "cores", "sample")
    repeat, mode, gamma, round_trip, cores, sample = (line.pop(name) for name in names)
    return Run(repeat, Cell(Mode(mode), gamma, round_trip, cores), sample, line)
