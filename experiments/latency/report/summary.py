"""From runs to medians and ratios."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from experiments.common.bench.stats import ratio_of_medians
from experiments.latency.cells import CHOSEN, Cell
from experiments.latency.sweep.store import Run, Sweep
from specwhisper.speculation.comparison import Ratio
from specwhisper.types import Mode


@dataclass(frozen=True)
class Summary:
    """What every cell took, repeat by repeat: seconds per token, over all recordings.

    Attributes
    ----------
    sweep : with the runs that count.
    """

    sweep: Sweep
    times_s: Mapping[Cell, Mapping[int, float]]

    @staticmethod
    def of(sweep: Sweep) -> Summary:
        """Gather the runs; those in which the network itself took too much of a core do not count."""
        gathered: dict[Cell, dict[int, list[Run]]] = defaultdict(lambda: defaultdict(list))
        num_samples = len(sweep.header["asked"]["samples"])
        for run in sweep.counted.runs:
            gathered[run.cell][run.repeat].append(run)
        times_s = {
            cell: {repeat: _over(runs) for repeat, runs in repeats.items() if len(runs) == num_samples}
            for cell, repeats in gathered.items()
        }
        return Summary(sweep.counted, {cell: times for cell, times in times_s.items() if times})

    def steps(self, cell: Cell) -> float:
        """Give a cell's round trip in passes of the target alone."""
        return self.sweep.round_trips_s[cell.round_trip] / self.sweep.step_s

    def median_s(self, cell: Cell) -> float:
        """Give a cell's time per token."""
        return median(self.times_s[cell].values())

    def asked(self, mode: Mode, round_trip: int, *, cores: int = 1, fixed: bool = False) -> list[Cell]:
        """Give the cells of a mode that were asked for; with ``fixed``, those whose draft length was set."""
        here = (mode, round_trip, cores)
        found = [c for c in self.sweep.asked_cells if (c.mode, c.round_trip, c.cores) == here]
        return [cell for cell in found if cell.gamma != CHOSEN] if fixed else found

    def asked_full(self, round_trip: int) -> list[Cell]:
        """Give what a user gets of ``full``: the session's own choice, or else all lengths that were set."""
        found = self.asked(Mode.FULL, round_trip)
        return [cell for cell in found if cell.gamma == CHOSEN] or found

    def fastest(self, cells: Iterable[Cell]) -> Cell | None:
        """Give the fastest of those that were measured."""
        return min((cell for cell in cells if cell in self.times_s), key=self.median_s, default=None)

    def best(self, mode: Mode, round_trip: int, *, cores: int = 1, fixed: bool = False) -> Cell | None:
        """Give the fastest cell of a mode; with ``fixed``, of those whose draft length was set."""
        return self.fastest(self.asked(mode, round_trip, cores=cores, fixed=fixed))

    def alone(self, round_trip: int) -> Cell | None:
        """Give the target alone at a round trip, if it was measured there."""
        return self.best(Mode.TARGET_ONLY, round_trip)

    def full(self, round_trip: int) -> Cell | None:
        """Give what a user gets of ``full``, if it was measured."""
        return self.fastest(self.asked_full(round_trip))

    def ratio(self, cell: Cell, reference: Cell, *, seed: int) -> Ratio | None:
        """Compare two cells over the repeats that both have; ``None`` where there is none."""
        ours, theirs = self.times_s[cell], self.times_s[reference]
        repeats = sorted(ours.keys() & theirs.keys())
        if not repeats:
            return None
        return ratio_of_medians([ours[r] for r in repeats], [theirs[r] for r in repeats], seed=seed)


def _over(runs: Sequence[Run]) -> float:
    """Give the time per token of several recordings together."""
    num_tokens = sum(run.facts["num_tokens"] for run in runs)
    return float(sum(run.time_per_token_s * run.facts["num_tokens"] for run in runs) / num_tokens)
