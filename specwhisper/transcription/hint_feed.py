"""Hints of a session, on their way to one server after another."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from specwhisper.errors import InvalidRequest
from specwhisper.options import MAX_HINT_BYTES
from specwhisper.types import MAX_HINT_TEXT_BYTES, HintText


class HintFeed:
    """Passes hints on, and repeats them for each server that the session continues on.

    It keeps :data:`specwhisper.options.MAX_HINT_BYTES`, of the latest audio.
    """

    def __init__(self) -> None:
        self._kept: list[HintText] = []  # in order of their times
        self._num_bytes = 0
        self._receive: Callable[[HintText], None] = lambda _: None

    def put(self, hint: HintText) -> None:
        """Pass on a hint, which replaces all text from its time on."""
        index = bisect_left(self._kept, hint.start_sample, key=lambda kept: kept.start_sample)
        self._num_bytes += _size(hint) - sum(map(_size, self._kept[index:]))
        self._kept[index:] = [hint]
        while self._num_bytes > MAX_HINT_BYTES:
            self._num_bytes -= _size(self._kept.pop(0))
        self._receive(hint)

    def connect(self, receive: Callable[[HintText], None]) -> None:
        """Pass the hints that were kept, and all that follow, to another server."""
        self._receive = receive
        for hint in self._kept:
            receive(hint)


def _size(hint: HintText) -> int:
    return len(hint.text.encode()) + 16  # of its time


def check_hint_text(text: str, max_bytes: int = MAX_HINT_TEXT_BYTES) -> None:
    """Raise :class:`InvalidRequest` for a text that is too long for one hint."""
    if (num_bytes := len(text.encode())) > max_bytes:
        raise InvalidRequest(f"A hint has {num_bytes} bytes: send at most {max_bytes} at once.")
