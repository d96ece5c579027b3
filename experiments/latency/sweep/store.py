"""A sweep's file: a header line of JSON, then a line per run; an interrupted sweep continues."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from experiments.latency.cells import Cell, Hints, cells_of
from experiments.latency.networks.conditions import Conditions
from experiments.latency.sweep.origin import Origin
from experiments.latency.terms import MAX_NETWORK_SHARE
from specwhisper.errors import InvalidRequest
from specwhisper.types import Mode

FORMAT = 4
SAME = ("models", "conditions", "request", "network")  # must match to continue
SCORES = ("log_probs", "margins", "no_speech_prob", "draft_log_probs", "continuation_log_probs")


@dataclass(frozen=True)
class Run:
    """One transcription of a recording in a cell.

    Attributes
    ----------
    facts : measured values, as in the file.
    """

    repeat: int
    cell: Cell
    sample: str
    facts: dict[str, Any]

    @property
    def time_per_token_s(self) -> float:
        """Seconds per token from the first commit to the last."""
        return float(self.facts["time_per_token_s"])

    @property
    def statistics(self) -> dict[str, Any]:
        """The session's statistics."""
        statistics: dict[str, Any] = self.facts["statistics"]
        return statistics

    @property
    def counts(self) -> bool:
        """Whether the network's process used little of its core; otherwise the run is not evaluated."""
        return bool(self.facts["network_share"] <= MAX_NETWORK_SHARE)

    @property
    def origin(self) -> Origin:
        """The code that was measured, and on what."""
        return Origin.of(self.facts)

    def __str__(self) -> str:
        return f"{self.cell}, round trip {self.cell.round_trip + 1}, {self.sample}, repeat {self.repeat + 1}"


@dataclass(frozen=True)
class Sweep:
    """A sweep's header and the runs measured so far.

    Attributes
    ----------
    header : conditions, models, machine, and ``step_s``, the time of a target-only forward pass.
    """

    header: dict[str, Any]
    runs: tuple[Run, ...]

    @property
    def step_s(self) -> float:
        """Time of a target-only forward pass, the unit of round trips."""
        return float(self.header["step_s"])

    @property
    def round_trips_s(self) -> list[float]:
        """Round trips by the index that cells have."""
        return [float(round_trip_s) for round_trip_s in self.header["round_trips_s"]]

    @property
    def conditions(self) -> Conditions:
        """Network conditions at every round trip."""
        return Conditions(**self.header["conditions"])

    @cached_property
    def requested_cells(self) -> list[Cell]:
        """The requested cells of each repeat."""
        request = self.header["request"]
        modes = [Mode(name) for name in request["modes"]]
        hints = [Hints(name) for name in request["hints"]]
        return cells_of(modes, request["gammas"], len(self.round_trips_s), request["max_cores"], hints)

    @property
    def counted(self) -> Sweep:
        """The sweep with only the runs that count."""
        return replace(self, runs=tuple(run for run in self.runs if run.counts))

    @property
    def done(self) -> set[tuple[int, Cell, str]]:
        """Repeat, cell and recording of the runs that count."""
        return {(run.repeat, run.cell, run.sample) for run in self.runs if run.counts}

    @property
    def different(self) -> list[Run]:
        """Runs whose text differs from the target's, including those that do not count."""
        return [run for run in self.runs if not run.facts["is_same"]]


class Store:
    """The file of a sweep."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Sweep:
        """Read the file; leave out a last line that was not completely written."""
        try:
            lines = [json.loads(line) for line in self._path.read_bytes().split(b"\n")[:-1]]
            header, *runs = lines
            if header["format"] != FORMAT:
                raise ValueError(f"it is of format {header['format']}, and only {FORMAT} can be read")
            return Sweep(header, tuple(_run(line) for line in runs))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidRequest(
                f"{self._path} holds no readable sweep ({error}): pass another file, or measure a sweep "
                "first."
            ) from error

    def begin(self, header: dict[str, Any]) -> Sweep:
        """Continue a sweep with the same request, or create one; refuse any other."""
        try:
            if not self._path.exists() or not self._path.stat().st_size:
                self._create(json.dumps({"format": FORMAT, **header}) + "\n")
                return self.load()
            found = self.load()
            self._refuse_other(found.header, header)
            self._drop_torn_line()
        except OSError as error:
            raise InvalidRequest(f"{self._path} cannot be written ({error}): pass another file.") from error
        return found

    def append(self, run: Run) -> None:
        """Append a run to the file."""
        cell = {"mode": run.cell.mode, "gamma": run.cell.gamma}
        cell |= {"round_trip": run.cell.round_trip, "cores": run.cell.cores, "hints": run.cell.hints}
        line = json.dumps({"repeat": run.repeat, **cell, "sample": run.sample, **run.facts})
        with self._path.open("a") as file:
            file.write(line + "\n")

    def _create(self, text: str) -> None:
        """Write the header line atomically."""
        beside = self._path.with_name(f"{self._path.name}.new")
        beside.write_text(text)
        beside.replace(self._path)

    def _refuse_other(self, found: dict[str, Any], header: dict[str, Any]) -> None:
        for name in SAME:
            if found[name] != header[name]:
                raise InvalidRequest(
                    f"{self._path} holds a sweep with other {name} ({found[name]}): pass another file."
                )
        if _written(found["trace"]) != _written(header["trace"]):
            raise InvalidRequest(
                f"{self._path} holds a sweep of another trace: the models or recordings of these names have "
                "changed, or write another text. Pass another file."
            )
        if found["texts"] != header["texts"]:
            raise InvalidRequest(
                f"{self._path} holds a sweep in which target-only wrote another text: pass another file."
            )

    def _drop_torn_line(self) -> None:
        content = self._path.read_bytes()
        with self._path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def _written(trace: str) -> dict[str, Any]:
    """Return a trace without its scores, whose last digits differ between recordings."""
    content: dict[str, Any] = json.loads(trace)
    decodings = [{n: v for n, v in one.items() if n not in SCORES} for one in content["decodings"]]
    return {**content, "decodings": decodings}


def _run(line: dict[str, Any]) -> Run:
    names = ("repeat", "mode", "gamma", "round_trip", "cores", "hints", "sample")
    repeat, mode, gamma, round_trip, cores, hints, sample = (line.pop(name) for name in names)
    return Run(repeat, Cell(Mode(mode), gamma, round_trip, cores, Hints(hints)), sample, line)
