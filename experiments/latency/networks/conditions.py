"""What a network does to what crosses it, and when each packet leaves it: pure, no socket and no clock."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from math import inf
from random import Random

from specwhisper.errors import InvalidRequest

MAX_QUEUE_S = 0.25  # that a narrow line's queue holds, as a router's does; what comes then is dropped


@dataclass(frozen=True, slots=True)
class Conditions:
    """A network; all but the round trip holds for each of the two ways by itself.

    Attributes
    ----------
    round_trip_s : delay, half of it each way.
    jitter_s : what queues add, exponential with this mean; packets keep their order.
    loss : share of packets that never arrive.
    reordering : share of packets that overtake those before them, as in netem: they are not delayed, but wait
        for the end of a stall as all do.
    bytes_per_s : bandwidth; 0 is unlimited. The queue before it holds :data:`MAX_QUEUE_S` of it.
    stall_every_s, stall_s : so often nothing passes for so long; 0 for never.
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
                    f"{field.name} is {getattr(self, field.name)}: it is a number that cannot be negative."
                )
        for name in ("loss", "reordering"):
            if getattr(self, name) >= 1:
                raise InvalidRequest(f"{name} is {getattr(self, name)}: it is a share below 1.")
        if self.stall_s and self.stall_s >= self.stall_every_s:
            raise InvalidRequest(
                f"Stalls of {self.stall_s} s every {self.stall_every_s} s let nothing through."
            )

    @property
    def unforeseen(self) -> list[str]:
        """Name what neither formulas nor the simulation know."""
        told = {"loss": self.loss, "reordering": self.reordering}
        told |= {"bandwidth": self.bytes_per_s, "stalls": self.stall_s}
        return [name for name, value in told.items() if value]

    @property
    def needs_packets(self) -> bool:
        """Whether it does what no stream of bytes can suffer."""
        return bool(self.loss or self.reordering)

    def __str__(self) -> str:
        told = [f"{1e3 * self.round_trip_s:g} ms"]
        told += [f"jitter {1e3 * self.jitter_s:g} ms"] if self.jitter_s else []
        told += [
            f"{name} {getattr(self, name):.1%}" for name in ("loss", "reordering") if getattr(self, name)
        ]
        told += [f"{self.bytes_per_s / 125_000:g} Mbit/s"] if self.bytes_per_s else []
        told += [f"stalls of {self.stall_s:g} s every {self.stall_every_s:g} s"] if self.stall_s else []
        return ", ".join(told)

    def facts(self) -> dict[str, float]:
        """Give what is not zero, as plain values."""
        return {name: value for name, value in asdict(self).items() if value or name == "round_trip_s"}


class Way:
    """One of the two directions: tells when each packet that enters it leaves.

    Parameters
    ----------
    max_queue_s : what a narrow line's queue holds, in seconds of its bandwidth; more is dropped.
    """

    def __init__(self, conditions: Conditions, seed: int, *, max_queue_s: float = MAX_QUEUE_S) -> None:
        self._conditions = conditions
        self._random = Random(seed)
        self._max_queue_s = max_queue_s
        self._free_s = 0.0  # when the line has sent what it was given
        self._last_s = 0.0  # when the last packet that keeps its order leaves

    def leaves_s(self, now_s: float, num_bytes: int) -> float | None:
        """Give the moment at which a packet leaves; ``None`` if it is lost."""
        conditions, random = self._conditions, self._random
        if conditions.loss and random.random() < conditions.loss:
            return None
        leaves_s = now_s
        if conditions.bytes_per_s:
            if self._free_s - now_s > self._max_queue_s:
                return None
            leaves_s = self._free_s = max(now_s, self._free_s) + num_bytes / conditions.bytes_per_s
        if conditions.reordering and random.random() < conditions.reordering:
            return self._after_stall_s(leaves_s)
        leaves_s += conditions.round_trip_s / 2
        if conditions.jitter_s:
            leaves_s += random.expovariate(1 / conditions.jitter_s)
        self._last_s = max(self._last_s, self._after_stall_s(leaves_s))
        return self._last_s

    def _after_stall_s(self, moment_s: float) -> float:
        """Give the moment itself, or the end of the stall that it lies in."""
        conditions = self._conditions
        if not conditions.stall_s:
            return moment_s
        return moment_s + max(0.0, conditions.stall_s - moment_s % conditions.stall_every_s)
