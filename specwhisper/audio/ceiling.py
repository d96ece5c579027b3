"""The loudest moment that a window's features are measured against."""

from __future__ import annotations

import math
from collections.abc import Mapping

from specwhisper.errors import InvalidRequest


class FeatureCeiling:
    """Log10 mel power of the loudest moment by number of mel bins.

    Where the maximum of the whole recording is known, that is it, as in transformers. Otherwise it is the
    maximum over the windows up to the one in question: it depends on where that window ends and not on what
    was asked before, so that a window opened on a wrong guess leaves no trace in the right one.

    Parameters
    ----------
    log_mel_max : maxima of the whole recording, for the numbers of mel bins they are known for.
    """

    def __init__(self, log_mel_max: Mapping[int, float]) -> None:
        for num_mel_bins, maximum in log_mel_max.items():
            if not math.isfinite(maximum):
                raise InvalidRequest(f"log_mel_max for {num_mel_bins} bins is {maximum}: it must be finite.")
        self._log_mel_max = dict(log_mel_max)
        self._peaks: dict[int, dict[int, float]] = {}  # by number of mel bins, by end frame

    def raise_to(self, num_mel_bins: int, end_frame: int, peak: float) -> float:
        """Note the loudest moment of a window that ends at ``end_frame`` and give its ceiling."""
        if num_mel_bins in self._log_mel_max:
            return self._log_mel_max[num_mel_bins]
        peaks = self._peaks.setdefault(num_mel_bins, {})
        peaks[end_frame] = max([peak, *(heard for end, heard in peaks.items() if end <= end_frame)])
        return peaks[end_frame]

    def at(self, num_mel_bins: int, end_frame: int) -> float | None:
        """Give the ceiling of a window that ends at ``end_frame``; ``None`` while nothing is known."""
        if num_mel_bins in self._log_mel_max:
            return self._log_mel_max[num_mel_bins]
        peaks = self._peaks.get(num_mel_bins, {})
        return max((heard for end, heard in peaks.items() if end <= end_frame), default=None)

    def forget_windows_before(self, frame: int) -> None:
        """Fold windows that end by ``frame`` into one, so that hours of audio take no room."""
        for num_mel_bins, peaks in self._peaks.items():
            past = {end: peak for end, peak in peaks.items() if end <= frame}
            if past:
                kept = {end: peak for end, peak in peaks.items() if end > frame}
                self._peaks[num_mel_bins] = {max(past): max(past.values())} | kept
