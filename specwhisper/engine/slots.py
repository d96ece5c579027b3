"""Which of a model's slots are free."""

from __future__ import annotations

from specwhisper.errors import ServerFull


class Slots:
    """Gives slots out and takes them back; ``holder`` is who is full when none is left."""

    def __init__(self, num_slots: int, holder: str) -> None:
        self.num_slots = num_slots
        self._holder = holder
        self._free = list(reversed(range(num_slots)))

    @property
    def num_free(self) -> int:
        """Slots that can still be taken."""
        return len(self._free)

    def take(self) -> int:
        """Take a slot; :class:`ServerFull` when there is none."""
        self.check_free()
        return self._free.pop()

    def check_free(self) -> None:
        """Raise :class:`ServerFull` when no slot is left."""
        if not self._free:
            raise ServerFull(f"{self._holder} holds its {self.num_slots} sessions already: try again later.")

    def give_back(self, slot: int) -> None:
        """Let another session have a slot."""
        self._free.append(slot)
