"""How the draft did in a live transcription, over all the calls that it takes."""

from __future__ import annotations

from specwhisper.speculation.statistics import SpeculationStatistics


class LiveFigures:
    """Adds up what the calls of a stream count: each begins anew, and a stream that goes on takes another."""

    def __init__(self) -> None:
        self._before = SpeculationStatistics()
        self._now = SpeculationStatistics()

    @property
    def total(self) -> SpeculationStatistics:
        """The totals so far."""
        total = SpeculationStatistics()
        total.add(self._before)
        total.add(self._now)
        return total

    def observe(self, statistics: SpeculationStatistics | None) -> SpeculationStatistics | None:
        """Take in what an update says and give the totals; nothing where it says nothing."""
        if statistics is None:
            return None
        if statistics.num_passes < self._now.num_passes or statistics.num_windows < self._now.num_windows:
            self._before = self.total
        self._now = statistics
        return self.total
