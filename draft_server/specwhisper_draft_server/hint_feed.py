"""Texts that the audio is believed to say, on their way to the targets of a session."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from specwhisper.types import SAMPLE_RATE, HintText

KEPT_SAMPLES = 60 * SAMPLE_RATE  # before the newest: two windows
MAX_KEPT = 256


class HintFeed:
    """Passes hints on, and repeats the newest ones for each target that the session continues on."""

    def __init__(self) -> None:
        self._kept: list[HintText] = []  # in order of their times
        self._receive: Callable[[HintText], None] = lambda _: None

    def put(self, hint: HintText) -> None:
        """Pass on a hint, which replaces all text from its time on."""
        later = bisect_left(self._kept, hint.start_sample, key=lambda kept: kept.start_sample)
        self._kept[later:] = [hint]
        oldest = hint.start_sample - KEPT_SAMPLES
        num_old = bisect_left(self._kept, oldest, key=lambda kept: kept.start_sample)
        del self._kept[: max(num_old, len(self._kept) - MAX_KEPT)]
        self._receive(hint)

    def connect(self, receive: Callable[[HintText], None]) -> None:
        """Pass the hints that were kept, and all that follow, to another target."""
        self._receive = receive
        for hint in self._kept:
            receive(hint)
