"""What a sweep is asked for: which cells, and of which models, recordings and network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from experiments.common.audio.samples import Sample
from experiments.latency.cells import Cell, cells_of
from experiments.latency.networks.conditions import Conditions
from experiments.latency.sweep.models import Models
from specwhisper.errors import InvalidRequest
from specwhisper.types import Mode


@dataclass(frozen=True, slots=True)
class Asked:
    """The cells, and how often and in which order they are measured.

    Attributes
    ----------
    round_trips : in passes of the target alone, or in seconds where ``in_seconds``.
    """

    modes: Sequence[Mode]
    gammas: Sequence[int]
    round_trips: Sequence[float]
    in_seconds: bool
    repeats: int
    max_cores: int
    seed: int

    def cells(self) -> list[Cell]:
        """Give every combination."""
        return cells_of(self.modes, self.gammas, len(self.round_trips), self.max_cores)

    def facts(self) -> dict[str, Any]:
        """Give what makes it the same sweep, as plain values; more repeats may be added to it."""
        plain = {**asdict(self), "modes": [str(mode) for mode in self.modes]}
        del plain["repeats"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}


@dataclass(frozen=True, slots=True)
class Setting:
    """What they are measured with.

    Attributes
    ----------
    samples : recordings, each of another name.
    network : its name.
    conditions : of the network at every round trip.
    """

    models: Models
    samples: Sequence[Sample]
    network: str
    conditions: Conditions

    def __post_init__(self) -> None:
        names = [sample.name for sample in self.samples]
        if len(set(names)) < len(names):
            raise InvalidRequest(f"--audio has a name twice ({', '.join(names)}): give each file its own.")
