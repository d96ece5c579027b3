"""How many windows are being encoded."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any


class Encodings:
    """Encodings that are under way or wait for their turn."""

    def __init__(self) -> None:
        self._unfinished: list[Future[Any]] = []

    def add(self, encoding: Future[Any]) -> None:
        """Note one that was asked for; those that are done are forgotten."""
        self._forget()
        self._unfinished.append(encoding)

    @property
    def num_unfinished(self) -> int:
        """How many are neither done nor given up."""
        self._forget()
        return len(self._unfinished)

    def _forget(self) -> None:
        self._unfinished = [encoding for encoding in self._unfinished if not encoding.done()]
