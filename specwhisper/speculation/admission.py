"""Decide whether a server takes one more session: slots, and a target's time."""

from __future__ import annotations

from specwhisper.errors import ServerFull

SMOOTHING = 0.05  # weight of the latest response


class FreeSlots:
    """The slots of a model that no session holds.

    Parameters
    ----------
    server : names the server in the error when no slot is free.
    """

    def __init__(self, num_slots: int, server: str) -> None:
        self.num_slots = num_slots
        self._server = server
        self._free = list(reversed(range(num_slots)))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """Take a slot; raise :class:`ServerFull` if none is free."""
        self.check_free()
        return self._free.pop()

    def check_free(self) -> None:
        """Raise :class:`ServerFull` if no slot is free."""
        if not self._free:
            raise ServerFull(f"{self._server} holds its {self.num_slots} sessions already: try again later.")

    def give_back(self, slot: int) -> None:
        self._free.append(slot)


class ResponseTime:
    """Recent mean response time, from the moment a session has work to its commit.

    The encoder's time is not part of it, because no forward pass waits for the encoder.

    Parameters
    ----------
    budget_ms : longest mean response time; ``None`` for no limit.
    """

    def __init__(self, budget_ms: float | None = None) -> None:
        self.budget_ms = budget_ms
        self.mean_ms = 0.0
        self._mean_sessions = 0.0

    def observe(self, response_ns: int, num_sessions: int) -> None:
        weight = SMOOTHING if self._mean_sessions else 1
        self.mean_ms += (response_ns / 1e6 - self.mean_ms) * weight
        self._mean_sessions += (num_sessions - self._mean_sessions) * weight

    def expected_ms(self, num_sessions: int) -> float:
        """Estimate the response time with so many sessions: proportional to their number."""
        return self.mean_ms * num_sessions / self._mean_sessions if self._mean_sessions else 0.0

    def has_room(self, num_sessions: int) -> bool:
        """Return whether one more session keeps the budget; the first one does."""
        if self.budget_ms is None or num_sessions == 0:
            return True
        return self.expected_ms(num_sessions + 1) <= self.budget_ms
