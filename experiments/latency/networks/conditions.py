"""Delay, jitter, loss, reordering, bandwidth and stalls of a network; pure, without socket or clock."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from math import inf
from random import Random

from specwhisper.errors import InvalidRequest

MAX_QUEUE_S = 0.25  # length of a narrow line's queue; later packets are dropped, as by a router


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of a network; all but the round trip apply to each direction.

    Attributes
    ----------
    round_trip_s : delay, half of it each way.
    jitter_s : mean queueing delay, exponential; packets keep their order.
    loss : share of packets that never arrive.
    reordering : share of packets that overtake earlier ones: as in netem they are not delayed, but all wait
        for the end of a stall as all do.
    bytes_per_s : bandwidth; 0 is unlimited. Its queue holds :data:`MAX_QUEUE_S`.
    stall_every_s, stall_s : period and length of stalls, in which nothing passes; 0 for none.
    """

    round_trip_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    reordering: float = 0.0
    bytes_per_s: float = 0.0
    stall_every_s: float = 0.0
    stall_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 <= getattr(self, field.name) < inf:
                raise InvalidRequest(
                    f"{field.name} is {getattr(self, field.name)}: pass a finite number from 0 on."
                )
        for name in ("loss", "reordering"):
            if getattr(self, name) >= 1:
                raise InvalidRequest(f"{name} is {getattr(self, name)}: pass a share below 1.")
        if self.stall_s and self.stall_s >= self.stall_every_s:
            raise InvalidRequest(
                f"Stalls of {self.stall_s} s every {self.stall_every_s} s let nothing through: "
                "pass a longer period."
            )

    @property
    def not_modelled(self) -> list[str]:
        """Names of the conditions that neither closed forms nor the simulation model."""
        values = {"loss": self.loss, "reordering": self.reordering}
        values |= {"bandwidth": self.bytes_per_s, "stalls": self.stall_s}
        return [name for name, value in values.items() if value]

    @property
    def needs_packets(self) -> bool:
        """Whether it loses or reorders packets, which a TCP proxy cannot do."""
        return bool(self.loss or self.reordering)

    def __str__(self) -> str:
        parts = [f"{1e3 * self.round_trip_s:g} ms"]
        parts += [f"jitter {1e3 * self.jitter_s:g} ms"] if self.jitter_s else []
        parts += [
            f"{name} {getattr(self, name):.1%}" for name in ("loss", "reordering") if getattr(self, name)
        ]
        parts += [f"{self.bytes_per_s / 125_000:g} Mbit/s"] if self.bytes_per_s else []
        parts += [f"stalls of {self.stall_s:g} s every {self.stall_every_s:g} s"] if self.stall_s else []
        return ", ".join(parts)

    def facts(self) -> dict[str, float]:
        """Return the non-zero conditions as JSON values."""
        return {name: value for name, value in asdict(self).items() if value or name == "round_trip_s"}


class Direction:
    """One direction: computes when each packet that enters it leaves.

    Parameters
    ----------
    max_queue_s : length of a narrow line's queue, in seconds of its bandwidth; more is dropped.

    Attributes
    ----------
    last_s : when the last packet that keeps its order leaves, under earlier conditions too.
    """

    def __init__(
        self, conditions: Conditions, seed: int, *, max_queue_s: float = MAX_QUEUE_S, last_s: float = 0.0
    ) -> None:
        self._conditions = conditions
        self._random = Random(seed)
        self._max_queue_s = max_queue_s
        self._free_s = 0.0  # when the line has sent all that is queued
        self.last_s = last_s

    def departure_s(self, now_s: float, num_bytes: int) -> float | None:
        """Return when a packet leaves, or ``None`` if it is lost."""
        conditions, random = self._conditions, self._random
        if conditions.loss and random.random() < conditions.loss:
            return None
        departure_s = now_s
        if conditions.bytes_per_s:
            if self._free_s - now_s > self._max_queue_s:
                return None
            departure_s = self._free_s = max(now_s, self._free_s) + num_bytes / conditions.bytes_per_s
        if conditions.reordering and random.random() < conditions.reordering:
            return self._after_stall_s(departure_s)
        departure_s += conditions.round_trip_s / 2
        if conditions.jitter_s:
            departure_s += random.expovariate(1 / conditions.jitter_s)
        self.last_s = max(self.last_s, self._after_stall_s(departure_s))
        return self.last_s

    def _after_stall_s(self, moment_s: float) -> float:
        """Return the moment, or the end of the stall that it falls into."""
        conditions = self._conditions
        if not conditions.stall_s:
            return moment_s
        return moment_s + max(0.0, conditions.stall_s - moment_s % conditions.stall_every_s)
