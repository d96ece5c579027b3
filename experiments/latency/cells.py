"""A cell of the grid: how speech sounds, mode, draft length, hint and round trip; and the grid's file."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from experiments.common.audio.conditions import Condition
from experiments.common.bench.program import at_least, parse_list
from specwhisper.errors import InvalidRequest
from specwhisper.speculation.draft_length import MAX_GAMMA
from specwhisper.types import Mode

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
    """The file of a grid: a header, then each run; more can always be added."""

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


CHOSEN = 0  # draft length: each session chooses its own


@dataclass(frozen=True, slots=True, order=True)
class Arm:
    """How a text is written.

    Attributes
    ----------
    gamma : tokens of a block, or :data:`CHOSEN`, which ``target-only`` has too.
    has_hint : whether the target has a text from outside, of which a tenth of the words is wrong.
    """

    mode: Mode
    gamma: int = CHOSEN
    has_hint: bool = False

    def __str__(self) -> str:
        hint = " with a given hint" if self.has_hint else ""
        return f"{self.mode}{hint}" + (f", gamma {self.gamma}" if self.gamma != CHOSEN else "")


TARGET_ONLY = Arm(Mode.TARGET_ONLY)
HINTED = tuple(Arm(mode, has_hint=True) for mode in (Mode.TARGET_ONLY, Mode.FULL))


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    condition: Condition
    rtt_ms: float
    arm: Arm

    @property
    def target_only(self) -> Cell:
        """The cell that it is compared with."""
        return Cell(self.condition, self.rtt_ms, TARGET_ONLY)

    def __str__(self) -> str:
        return f"{self.condition}, {self.rtt_ms:g} ms, {self.arm}"


def cells_of(
    conditions: Sequence[Condition],
    round_trips_ms: Sequence[float],
    modes: Sequence[Mode],
    gammas: Sequence[int],
    *,
    hints: bool,
) -> list[Cell]:
    """Return every combination; only drafts have a length, and target-only is in every one."""
    arms = dict.fromkeys(
        [TARGET_ONLY, *(Arm(mode, gamma) for mode in modes if mode.drafts for gamma in gammas)]
    )
    arms |= dict.fromkeys(HINTED if hints else ())
    return [Cell(*each) for each in product(conditions, round_trips_ms, arms)]


def in_order(cells: Sequence[Cell], repeats: int, seed: int) -> Iterator[tuple[int, Cell]]:
    """Yield repeat and cell: each repeat shuffles the round trips, and the cells at each of them."""
    random = Random(seed)
    for repeat in range(repeats):
        round_trips_ms = sorted({cell.rtt_ms for cell in cells})
        for rtt_ms in random.sample(round_trips_ms, len(round_trips_ms)):
            here = [cell for cell in cells if cell.rtt_ms == rtt_ms]
            yield from ((repeat, cell) for cell in random.sample(here, len(here)))


def parse_modes(words: str) -> list[Mode]:
    return parse_list(words, "--modes", Mode, f"some of {', '.join(Mode)}")


def parse_conditions(words: str) -> list[Condition]:
    return parse_list(words, "--conditions", Condition, f"some of {', '.join(Condition)}")


def parse_gammas(words: str) -> list[int]:
    """Parse draft lengths; 'chosen' is :data:`CHOSEN`."""
    lengths = {"chosen": CHOSEN} | {str(gamma): gamma for gamma in range(1, MAX_GAMMA + 1)}

    def gamma(word: str) -> int:
        if word not in lengths:
            raise ValueError(word)
        return lengths[word]

    return parse_list(words, "--gamma", gamma, f"numbers from 1 to {MAX_GAMMA} or 'chosen'")


def parse_round_trips(words: str) -> list[float]:
    return parse_list(words, "--rtt-ms", at_least(0, float), "numbers of 0 or more")
