"""Run cells under their round trips and compare their texts with the target's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from experiments.common.audio.samples import Sample
from experiments.latency.cells import Cell
from experiments.latency.networks.backends import Network
from experiments.latency.networks.conditions import Conditions
from experiments.latency.sweep.lab import Lab
from experiments.latency.terms import MAX_NETWORK_SHARE, MAX_TRIES


class CellRunner:
    """Runs cells, each under its round trip.

    Parameters
    ----------
    round_trips_s : by the index that cells have.
    """

    def __init__(
        self, lab: Lab, network: Network, conditions: Conditions, round_trips_s: Sequence[float]
    ) -> None:
        self._lab = lab
        self._network = network
        self._conditions = conditions
        self._round_trips_s = round_trips_s
        self._applied: int | None = None

    def run(self, cell: Cell, sample: Sample, tokens: Sequence[int], *, seed: int) -> dict[str, Any]:
        """Transcribe; repeat where the network used too much of a core. Return the last measurement.

        Parameters
        ----------
        tokens : the target's own text. One attempt with another text makes the run different.
        """
        self._apply(cell.round_trip, seed)
        is_same, num_discarded = True, 0
        while True:
            cpu_s = self._network.cpu_s()
            timed = self._lab.transcribe(cell, sample)
            share = (self._network.cpu_s() - cpu_s) / timed.wall_s
            is_same = is_same and timed.tokens == tuple(tokens)
            if share <= MAX_NETWORK_SHARE or num_discarded + 1 == MAX_TRIES:
                break
            num_discarded += 1
        return {
            "time_per_token_s": timed.time_per_token_s,
            "wall_s": timed.wall_s,
            "first_s": timed.first_s,
            "num_tokens": timed.statistics.num_committed,
            "network_share": share,
            "num_discarded": num_discarded,
            "is_same": is_same,
            "load": os.getloadavg()[0],
            "statistics": asdict(timed.statistics),
        }

    def _apply(self, place: int, seed: int) -> None:
        if self._applied != place:
            values = {**self._conditions.facts(), "round_trip_s": self._round_trips_s[place]}
            self._network.apply(Conditions(**values), seed=seed)
            self._lab.warm_up()
            self._applied = place
