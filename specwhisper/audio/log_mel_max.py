"""The log-mel maximum: the loudest log10 mel power, which scales features."""

from __future__ import annotations

import math
from collections.abc import Mapping

from specwhisper.errors import InvalidRequest


class LogMelMax:
    """Tracks the log-mel maximum by number of mel bins.

    If the maximum of the whole recording is known, it is that one, as in transformers. Otherwise it is the
    maximum over the windows up to the one in question. It depends on where that window ends, and not on the
    order of calls: a window that was predicted wrongly does not change the features of the right one.

    Parameters
    ----------
    known : maxima of the whole recording, for the numbers of mel bins that they are known for.
    """

    def __init__(self, known: Mapping[int, float]) -> None:
        for num_mel_bins, maximum in known.items():
            if not math.isfinite(maximum):
                raise InvalidRequest(f"log_mel_max for {num_mel_bins} bins is {maximum}: it must be finite.")
        self._known = dict(known)
        self._maxima: dict[int, dict[int, float]] = {}  # by number of mel bins, by end frame of the window

    def update(self, num_mel_bins: int, end_frame: int, log_mel_max: float) -> float:
        """Add a window's maximum; return the maximum for its features.

        Parameters
        ----------
        end_frame : where the window ends.
        """
        if num_mel_bins in self._known:
            return self._known[num_mel_bins]
        maxima = self._maxima.setdefault(num_mel_bins, {})
        maxima[end_frame] = max([log_mel_max, *(value for end, value in maxima.items() if end <= end_frame)])
        return maxima[end_frame]

    def at(self, num_mel_bins: int, end_frame: int) -> float | None:
        """Return the maximum for a window; ``None`` before any window.

        Parameters
        ----------
        end_frame : where the window ends.
        """
        if num_mel_bins in self._known:
            return self._known[num_mel_bins]
        maxima = self._maxima.get(num_mel_bins, {})
        return max((value for end, value in maxima.items() if end <= end_frame), default=None)

    def merge_windows_before(self, frame: int) -> None:
        """Merge the windows that end by ``frame``, so that memory stays constant."""
        for num_mel_bins, maxima in self._maxima.items():
            past = {end: value for end, value in maxima.items() if end <= frame}
            if past:
                later = {end: value for end, value in maxima.items() if end > frame}
                self._maxima[num_mel_bins] = {max(past): max(past.values())} | later
