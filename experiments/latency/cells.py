"""What is measured: a mode, a draft length and a round trip; and the order in which it is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from specwhisper.errors import InvalidRequest
from specwhisper.types import Mode

CHOSEN = 0  # the draft length of a session that chooses for itself
MAX_GAMMA = 64
Arm = tuple[Mode, int]  # a mode, and the cores of the process with the target


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One thing to measure.

    Attributes
    ----------
    gamma : tokens of a block, or :data:`CHOSEN`; of the target alone too.
    round_trip : place in the sweep's list of round trips. One process has no network; it is measured beside
        those that have, since a shared machine changes its speed.
    cores : that the process with the target has.
    """

    mode: Mode
    gamma: int = CHOSEN
    round_trip: int = 0
    cores: int = 1

    @property
    def has_closed_form(self) -> bool:
        """Whether a formula knows it: none knows drafts that wait, and stop where they are not sure."""
        return self.mode in (Mode.TARGET_ONLY, Mode.FULL) or self.gamma != CHOSEN

    def __str__(self) -> str:
        gamma = f", gamma {self.gamma or 'chosen'}" if self.mode.drafts else ""
        return f"{self.mode}{gamma}{_suffix(self.cores)}"


def arm_name(mode: Mode, cores: int) -> str:
    """Name a mode, and its cores where it has several."""
    return f"{mode}{_suffix(cores)}"


def _suffix(cores: int) -> str:
    return f", {cores} cores" if cores > 1 else ""


def cells_of(
    modes: Sequence[Mode], gammas: Sequence[int], num_round_trips: int, max_cores: int
) -> list[Cell]:
    """Give every combination: only drafts have a length, and only one process gets more cores."""
    found = []
    for mode in modes:
        lengths = gammas if mode.drafts else [CHOSEN]
        num_cores = max_cores if mode is Mode.ONE_PROCESS else 1
        found += [
            Cell(mode, gamma, place, cores)
            for gamma in lengths
            for place in range(num_round_trips)
            for cores in range(1, num_cores + 1)
        ]
    return found


def schedule(cells: Sequence[Cell], num_repeats: int, seed: int) -> Iterator[tuple[int, Cell]]:
    """Interleave: every repeat takes all round trips in a new order, and at each all cells in a new order."""
    random = Random(seed)
    for repeat in range(num_repeats):
        round_trips = sorted({cell.round_trip for cell in cells})
        for place in random.sample(round_trips, len(round_trips)):
            here = [cell for cell in cells if cell.round_trip == place]
            for cell in random.sample(here, len(here)):
                yield repeat, cell


def parse_modes(words: str) -> list[Mode]:
    """Read modes with commas between, each once."""
    try:
        return list(dict.fromkeys(Mode(word.strip()) for word in words.split(",")))
    except ValueError:
        names = ", ".join(Mode)
        raise InvalidRequest(f"--modes is '{words}': name some of {names}, with commas between.") from None


def parse_gammas(words: str) -> list[int]:
    """Read draft lengths, each once; 'chosen' leaves it to the session."""
    try:
        return list(dict.fromkeys(_gamma(word.strip()) for word in words.split(",")))
    except ValueError:
        raise InvalidRequest(
            f"--gamma is '{words}': write numbers from 1 to {MAX_GAMMA} with commas between, or 'chosen'."
        ) from None


def _gamma(word: str) -> int:
    if word == "chosen":
        return CHOSEN
    if not 1 <= int(word) <= MAX_GAMMA:
        raise ValueError(word)
    return int(word)


def parse_times(words: str, flag: str) -> list[float]:
    """Read times with commas between, in whatever unit the flag has."""
    try:
        found = [float(word) for word in words.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= time < inf for time in found):
        raise InvalidRequest(f"{flag} is '{words}': write numbers with commas between, none below 0.")
    return found


def parse_stall(words: str) -> tuple[float, float]:
    """Read the seconds of a stall, and those from one to the next."""
    found = parse_times(words, "--stall")
    if len(found) != 2:
        raise InvalidRequest(
            f"--stall is '{words}': write the seconds of a stall and from one to the next, as in '0.5,5'."
        )
    return found[0], found[1]
