"""Medians and ratios of a sweep's runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from experiments.common.bench.stats import ratio_of_medians
from experiments.latency.cells import CHOSEN, Arm, Cell, Hints
from experiments.latency.sweep.store import Run, Sweep
from specwhisper.speculation.comparison import Ratio
from specwhisper.types import Mode


@dataclass(frozen=True)
class Summary:
    """Seconds per token of each cell, by repeat, over all recordings.

    Attributes
    ----------
    sweep : with only the runs that count.
    """

    sweep: Sweep
    times_s: Mapping[Cell, Mapping[int, float]]

    @staticmethod
    def of(sweep: Sweep) -> Summary:
        """Group the runs; leave out those whose network used too much of a core."""
        gathered: dict[Cell, dict[int, list[Run]]] = defaultdict(lambda: defaultdict(list))
        num_samples = len(sweep.header["request"]["samples"])
        for run in sweep.counted.runs:
            gathered[run.cell][run.repeat].append(run)
        times_s = {
            cell: {repeat: _over(runs) for repeat, runs in repeats.items() if len(runs) == num_samples}
            for cell, repeats in gathered.items()
        }
        return Summary(sweep.counted, {cell: times for cell, times in times_s.items() if times})

    @property
    def repeats(self) -> str:
        """Number of repeats of each cell, as in "n = 5", or in "n = 3 to 5" where some have fewer."""
        return _repeats(self.times_s.values())

    @property
    def drawn_repeats(self) -> str:
        """The same, of cells whose length sessions chose, if any did."""
        return _repeats(
            times
            for cell, times in self.times_s.items()
            if cell.gamma == CHOSEN or not self.lengths_are_chosen
        )

    @property
    def set_repeats(self) -> str:
        """The same, of cells with a set draft length."""
        return _repeats(times for cell, times in self.times_s.items() if cell.gamma != CHOSEN)

    def set_arm(self, mode: Mode) -> Arm:
        """Return the arm in which a mode's draft lengths were set: with the first kind of hints."""
        kinds = self.sweep.header["request"]["hints"]
        return Arm(mode, hints=Hints(kinds[0])) if mode is Mode.FULL else Arm(mode)

    @cached_property
    def lengths_are_chosen(self) -> bool:
        """Whether sessions chose their draft length in any cell."""
        return any(cell.mode.drafts and cell.gamma == CHOSEN for cell in self.times_s)

    def steps(self, cell: Cell) -> float:
        """Return a cell's round trip in target-only forward passes."""
        return self.sweep.round_trips_s[cell.round_trip] / self.sweep.step_s

    def median_s(self, cell: Cell) -> float:
        """Return a cell's median time per token."""
        return median(self.times_s[cell].values())

    def requested(self, arm: Arm, round_trip: int, *, fixed: bool = False) -> list[Cell]:
        """Return the requested cells of an arm; with ``fixed``, those with a set draft length."""
        found = [c for c in self.sweep.requested_cells if (c.arm, c.round_trip) == (arm, round_trip)]
        return [cell for cell in found if cell.gamma != CHOSEN] if fixed else found

    def requested_full(self, round_trip: int, hints: Hints = Hints.REALIGNED) -> list[Cell]:
        """Return a user's ``full``: the session's own choice, or else all set draft lengths."""
        found = self.requested(Arm(Mode.FULL, hints=hints), round_trip)
        return [cell for cell in found if cell.gamma == CHOSEN] or found

    def fastest(self, cells: Iterable[Cell]) -> Cell | None:
        """Return the fastest measured cell."""
        return min((cell for cell in cells if cell in self.times_s), key=self.median_s, default=None)

    def best(self, arm: Arm, round_trip: int, *, fixed: bool = False) -> Cell | None:
        """Return the fastest cell of an arm; with ``fixed``, of those with a set draft length."""
        return self.fastest(self.requested(arm, round_trip, fixed=fixed))

    def target_only(self, round_trip: int) -> Cell | None:
        """Return the target-only cell at a round trip, if it was measured."""
        return self.best(Arm(Mode.TARGET_ONLY), round_trip)

    def full(self, round_trip: int, hints: Hints = Hints.REALIGNED) -> Cell | None:
        """Return a user's ``full`` at a round trip, if it was measured."""
        return self.fastest(self.requested_full(round_trip, hints))

    def drawn(self, arm: Arm, round_trip: int) -> Cell | None:
        """Return the cell that stands for an arm at a round trip, if it was measured.

        It has the draft length that sessions choose if any cell has it, for all arms alike; else the fastest
        of the set lengths.
        """
        if not (arm.mode.drafts and self.lengths_are_chosen):
            return self.best(arm, round_trip)
        cell = Cell(arm.mode, CHOSEN, round_trip, arm.cores, arm.hints)
        return cell if cell in self.times_s else None

    def over_measured(self, cell: Cell, expected_s: Mapping[int, float]) -> float:
        """Return the median over the repeats of a cell's predicted time over its measured time."""
        return median(expected_s[repeat] / time_s for repeat, time_s in self.times_s[cell].items())

    def ratio(self, cell: Cell, reference: Cell, *, seed: int) -> Ratio | None:
        """Compare two cells over their common repeats; ``None`` without any."""
        ours, theirs = self.times_s[cell], self.times_s[reference]
        repeats = sorted(ours.keys() & theirs.keys())
        if not repeats:
            return None
        return ratio_of_medians([ours[r] for r in repeats], [theirs[r] for r in repeats], seed=seed)


def _repeats(times_s: Iterable[Mapping[int, float]]) -> str:
    counts = [len(times) for times in times_s]
    fewest, most = min(counts, default=0), max(counts, default=0)
    return f"n = {fewest}" if fewest == most else f"n = {fewest} to {most}"


def _over(runs: Sequence[Run]) -> float:
    """Return the time per token over several recordings."""
    num_tokens = sum(run.facts["num_tokens"] for run in runs)
    return float(sum(run.time_per_token_s * run.facts["num_tokens"] for run in runs) / num_tokens)
