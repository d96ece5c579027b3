"""A cell of a sweep: mode, draft length, hints and round trip; the order of cells; parsing of the options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from random import Random
from typing import NamedTuple

from specwhisper.errors import InvalidRequest
from specwhisper.speculation.draft_length import MAX_GAMMA
from specwhisper.types import Mode

CHOSEN = 0  # draft length: each session chooses its own


class Hints(StrEnum):
    """The hints that the target has, in mode ``full``; texts from outside also in ``target-only``."""

    REALIGNED = "realigned"  # what the draft had sent before a correction, as the service does
    OFF = "off"
    GIVEN = "given"  # and a text from outside, with a tenth of its words wrong
    ADVERSARIAL = "adversarial"  # and one that is right for a few words and then wrong, again and again


FROM_OUTSIDE = (Hints.GIVEN, Hints.ADVERSARIAL)  # hints that need no draft


class Arm(NamedTuple):
    """The settings that a curve stands for: mode, cores of the target's process, and hints."""

    mode: Mode
    cores: int = 1
    hints: Hints = Hints.REALIGNED

    def __str__(self) -> str:
        cores = f", {self.cores} cores" if self.cores > 1 else ""
        return f"{self.mode}{_HINTS_NAMES[self.hints]}{cores}"


_HINTS_NAMES = {
    Hints.REALIGNED: "",
    Hints.OFF: " without hints",
    Hints.GIVEN: " with a given hint",
    Hints.ADVERSARIAL: " with an adversarial hint",
}


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One combination to measure.

    Attributes
    ----------
    gamma : tokens of a block, or :data:`CHOSEN`, which ``target-only`` has too.
    round_trip : index into the sweep's list of round trips. ``one-process`` has no network; it is measured at
        each of them all the same, since a shared machine changes its speed.
    cores : cores of the target's process.
    """

    mode: Mode
    gamma: int = CHOSEN
    round_trip: int = 0
    cores: int = 1
    hints: Hints = Hints.REALIGNED

    @property
    def arm(self) -> Arm:
        """The cell without draft length and round trip."""
        return Arm(self.mode, self.cores, self.hints)

    @property
    def has_closed_form(self) -> bool:
        """Whether a closed form exists.

        None covers waiting drafts that stop at low confidence, and none covers hints from outside: draft and
        hint help each other.
        """
        if self.hints in FROM_OUTSIDE:
            return False
        return self.mode in (Mode.TARGET_ONLY, Mode.FULL) or self.gamma != CHOSEN

    def __str__(self) -> str:
        return f"{self.arm}, gamma {self.gamma or 'chosen'}" if self.mode.drafts else str(self.arm)


def cells_of(
    modes: Sequence[Mode],
    gammas: Sequence[int],
    num_round_trips: int,
    max_cores: int,
    hints: Sequence[Hints] = (Hints.REALIGNED,),
) -> list[Cell]:
    """Return every combination.

    Only drafts have a length, only ``one-process`` has several cores, only ``full`` has all kinds of hints.
    Draft lengths are set for one kind of hints, the first.
    """
    found = []
    for mode in modes:
        num_cores = max_cores if mode is Mode.ONE_PROCESS else 1
        kinds = list(hints) if mode is Mode.FULL else [Hints.REALIGNED]
        if mode is Mode.TARGET_ONLY:
            kinds += [kind for kind in hints if kind in FROM_OUTSIDE]
        found += [
            Cell(mode, gamma, place, cores, kind)
            for kind in kinds
            for gamma in (gammas if mode.drafts else [CHOSEN])
            if gamma == CHOSEN or kind is kinds[0]
            for place in range(num_round_trips)
            for cores in range(1, num_cores + 1)
        ]
    return found


def schedule(
    cells: Sequence[Cell], num_repeats: int, seed: int, num_set_repeats: int | None = None
) -> Iterator[tuple[int, Cell]]:
    """Yield repeat and cell: each repeat shuffles the round trips, and the cells at each of them.

    Parameters
    ----------
    num_set_repeats : of these, how many have the cells with a set draft length: the last ones; by default
        all.
    """
    random = Random(seed)
    first_set = num_repeats - (num_repeats if num_set_repeats is None else num_set_repeats)
    for repeat in range(num_repeats):
        round_trips = sorted({cell.round_trip for cell in cells})
        for place in random.sample(round_trips, len(round_trips)):
            here = [
                cell
                for cell in cells
                if cell.round_trip == place and (cell.gamma == CHOSEN or repeat >= first_set)
            ]
            for cell in random.sample(here, len(here)):
                yield repeat, cell


def parse_modes(words: str) -> list[Mode]:
    """Parse comma-separated modes, without duplicates."""
    try:
        return list(dict.fromkeys(Mode(word.strip()) for word in words.split(",")))
    except ValueError:
        names = ", ".join(Mode)
        raise InvalidRequest(f"--modes is '{words}': pass a comma-separated list of {names}.") from None


def parse_hints(words: str) -> list[Hints]:
    """Parse comma-separated kinds of hints, without duplicates."""
    try:
        return list(dict.fromkeys(Hints(word.strip()) for word in words.split(",")))
    except ValueError:
        names = ", ".join(Hints)
        raise InvalidRequest(f"--hints is '{words}': pass a comma-separated list of {names}.") from None


def parse_gammas(words: str) -> list[int]:
    """Parse comma-separated draft lengths, without duplicates; 'chosen' is :data:`CHOSEN`."""
    try:
        return list(dict.fromkeys(_gamma(word.strip()) for word in words.split(",")))
    except ValueError:
        raise InvalidRequest(
            f"--gamma is '{words}': pass numbers from 1 to {MAX_GAMMA} or 'chosen', separated by commas."
        ) from None


def _gamma(word: str) -> int:
    if word == "chosen":
        return CHOSEN
    if not 1 <= int(word) <= MAX_GAMMA:
        raise ValueError(word)
    return int(word)


def parse_times(words: str, flag: str) -> list[float]:
    """Parse comma-separated times in the flag's unit."""
    try:
        found = [float(word) for word in words.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 <= time < inf for time in found):
        raise InvalidRequest(f"{flag} is '{words}': pass numbers from 0 on, separated by commas.")
    return found


def parse_stall(words: str) -> tuple[float, float]:
    """Parse the length of a stall and the time from one to the next, in seconds."""
    found = parse_times(words, "--stall")
    if len(found) != 2:
        raise InvalidRequest(
            f"--stall is '{words}': pass the seconds of a stall and from one to the next, as in '0.5,5'."
        )
    return found[0], found[1]
