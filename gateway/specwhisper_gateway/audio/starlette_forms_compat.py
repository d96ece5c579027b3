"""Limit each field of a form, by a private attribute of Starlette's parser."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.formparsers import MultiPartParser

from specwhisper.options import MAX_HINT_BYTES

STARLETTE = "1.10"  # the tested release
MAX_FIELD_BYTES = 64 * 1024  # a prompt has some hundred bytes
# Of samples of speakers in base64: 10 s of stereo at 48 kHz have 2.6 MB. Fields are held in memory.
MAX_SAMPLE_BYTES = 3 * 1024 * 1024
LARGE = {"hint": (1, MAX_HINT_BYTES), "known_speaker_references": (4, MAX_SAMPLE_BYTES)}


class LimitedForm(MultiPartParser):
    """Reads a form in which a few fields may be large.

    They are the first ones of a name, as many as ``LARGE`` has.

    ``_current_part`` is the part whose headers were read: nothing public has its name before its end.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._num_of_name: Counter[str] = Counter()

    def on_headers_finished(self) -> None:
        """Set the limit of the part that begins."""
        super().on_headers_finished()
        name = self._current_part.field_name.removesuffix("[]")
        self._num_of_name[name] += 1
        most, max_bytes = LARGE.get(name, (0, 0))
        self.max_part_size = max_bytes if self._num_of_name[name] <= most else MAX_FIELD_BYTES
