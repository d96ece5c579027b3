"""Free slots of a model."""

from __future__ import annotations

from specwhisper.errors import ServerFull


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
        """Number of free slots."""
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
        """Free a slot."""
        self._free.append(slot)
