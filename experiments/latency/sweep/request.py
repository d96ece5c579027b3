"""The request of a sweep: its cells, models, recordings and network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.common.audio.samples import Sample
from experiments.latency.cells import Cell, Hints, cells_of
from experiments.latency.networks.conditions import Conditions
from experiments.latency.sweep.models import Models
from specwhisper.errors import InvalidRequest
from specwhisper.types import Mode


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """The cells of a sweep, and how often and in which order they are measured.

    Attributes
    ----------
    round_trips : in target-only forward passes, or in seconds with ``in_seconds``.
    set_repeats : repeats of the cells with a set draft length; by default as many as of the others.
    """

    modes: Sequence[Mode]
    gammas: Sequence[int]
    round_trips: Sequence[float]
    in_seconds: bool
    repeats: int
    max_cores: int
    seed: int
    hints: Sequence[Hints] = (Hints.REALIGNED,)
    set_repeats: int | None = None

    def cells(self) -> list[Cell]:
        """Return every combination of mode, draft length and round trip."""
        return cells_of(self.modes, self.gammas, len(self.round_trips), self.max_cores, self.hints)

    def facts(self) -> dict[str, Any]:
        """Return what identifies the sweep, as JSON values; repeats may be added later."""
        plain = {**asdict(self), "modes": [str(mode) for mode in self.modes]}
        plain["hints"] = [str(kind) for kind in self.hints]
        del plain["repeats"], plain["set_repeats"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}


@dataclass(frozen=True, slots=True)
class SweepSetup:
    """Models, recordings and network of a sweep.

    Attributes
    ----------
    samples : recordings with distinct names.
    network : name of the network.
    conditions : network conditions at every round trip.
    """

    models: Models
    samples: Sequence[Sample]
    network: str
    conditions: Conditions

    def __post_init__(self) -> None:
        names = [sample.name for sample in self.samples]
        if len(set(names)) < len(names):
            raise InvalidRequest(f"--audio has a name twice ({', '.join(names)}): rename one of the files.")
