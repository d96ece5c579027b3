"""Text that grows, as deltas that join to it."""

from __future__ import annotations

from collections.abc import Iterable

from specwhisper.types import Segment


class Deltas:
    """Cuts a transcript into deltas that join to its text, stripped of spaces."""

    def __init__(self) -> None:
        self._final = ""
        self.sent = ""  # by all deltas, less what was taken back

    def add(self, segments: Iterable[Segment], settled: str = "") -> tuple[str, str]:
        """Return the text to take back from the end, and the text to add.

        Parameters
        ----------
        settled : text after the segments that is not final, but very likely to be.
        """
        self._final += "".join(segment.text for segment in segments)
        before, self.sent = self.sent, (self._final + settled).strip()
        same = len(before)
        if not self.sent.startswith(before):
            same = next(i for i in range(same) if self.sent[i : i + 1] != before[i])
        return before[same:], self.sent[same:]
