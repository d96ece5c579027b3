"""Hints of a session, on their way to one server after another."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from specwhisper.errors import InvalidRequest, check_between
from specwhisper.options import MAX_HINT_BYTES
from specwhisper.types import MAX_HINT_TEXT_BYTES, SAMPLE_RATE, TimedHint

MAX_START_S = 1e8  # three years


class HintFeed:
    """Keeps hints until a server takes them, and repeats them for the next one.

    It keeps :data:`specwhisper.options.MAX_HINT_BYTES`, of the latest audio. A hint that another one has
    replaced before it was taken is never sent.
    """

    def __init__(self) -> None:
        self._kept: list[TimedHint] = []  # in order of their times
        self._num_taken = 0  # the first of them
        self._num_bytes = 0

    def put(self, hint: TimedHint) -> None:
        """Add a hint, which replaces all text from its time on."""
        index = bisect_left(self._kept, hint.start_sample, key=lambda kept: kept.start_sample)
        self._num_bytes += _size(hint) - sum(map(_size, self._kept[index:]))
        self._kept[index:] = [hint]
        self._num_taken = min(self._num_taken, index)
        while self._num_bytes > MAX_HINT_BYTES:
            self._num_bytes -= _size(self._kept.pop(0))
            self._num_taken = max(0, self._num_taken - 1)

    def take(self, most: int | None = None) -> list[TimedHint]:
        """Return hints that were not taken yet, those of the earliest audio first."""
        new = self._kept[self._num_taken :][:most]
        self._num_taken += len(new)
        return new

    def restart(self, start_sample: int = 0) -> None:
        """Begin again, for another server, with all that may be said after a given sample."""
        later = bisect_right(self._kept, start_sample, key=lambda kept: kept.start_sample)
        self._num_taken = max(0, later - 1)


def _size(hint: TimedHint) -> int:
    return len(hint.text.encode()) + 16  # the time


def hint_at(start_s: float, text: str) -> TimedHint:
    """Return a hint for the audio that begins at ``start_s``.

    Raises
    ------
    InvalidRequest : for a text that is too long for one hint or no Unicode, or a time before the audio.
    """
    check_between("start_s", start_s, 0, MAX_START_S)
    return check_hint(TimedHint(round(start_s * SAMPLE_RATE), text))


def check_hint(hint: TimedHint) -> TimedHint:
    """Return a hint that may be sent.

    Raises
    ------
    InvalidRequest : for a text that is too long or not Unicode, or a time after the longest audio.
    """
    check_between("start_sample", hint.start_sample, 0, MAX_START_S * SAMPLE_RATE)
    try:
        num_bytes = len(hint.text.encode())
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise InvalidRequest(f"A hint is not valid Unicode: {error}.") from error
    if num_bytes > MAX_HINT_TEXT_BYTES:
        raise InvalidRequest(f"A hint has {num_bytes} bytes: send at most {MAX_HINT_TEXT_BYTES} at once.")
    return hint
