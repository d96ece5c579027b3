"""What is measured: a mode, a draft length and a round trip; and the order in which it is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from specwhisper.errors import InvalidRequest
from specwhisper.types import Mode

CHOSEN = 0  # the draft length of a session that chooses for itself
NETWORKED = (Mode.TARGET_ONLY, Mode.SYNC, Mode.PIPELINED, Mode.FULL)


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

    def __str__(self) -> str:
        gamma = f", gamma {self.gamma or 'chosen'}" if self.mode.drafts else ""
        return f"{self.mode}{gamma}{', 2 cores' if self.cores > 1 else ''}"


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
    """Read modes with commas between."""
    try:
        return [Mode(word.strip()) for word in words.split(",")]
    except ValueError:
        names = ", ".join(Mode)
        raise InvalidRequest(f"--modes is '{words}': name some of {names}, with commas between.") from None


def parse_gammas(words: str) -> list[int]:
    """Read draft lengths; 'chosen' leaves it to the session."""
    try:
        found = [CHOSEN if word.strip() == "chosen" else int(word) for word in words.split(",")]
    except ValueError:
        found = [-1]
    if any(gamma != CHOSEN and not 1 <= gamma <= 64 for gamma in found) or words.strip() == "0":
        raise InvalidRequest(
            f"--gamma is '{words}': write numbers from 1 to 64 with commas between, or 'chosen'."
        )
    return found


def parse_times(words: str, flag: str) -> list[float]:
    """Read round trips."""
    try:
        found = [float(word) for word in words.split(",")]
    except ValueError:
        found = [-1.0]
    if min(found) < 0:
        raise InvalidRequest(f"{flag} is '{words}': write numbers with commas between, none below 0.")
    return found
