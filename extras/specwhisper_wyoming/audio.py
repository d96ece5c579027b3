"""Audio chunks as 16-bit samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from specwhisper.errors import InvalidAudio

WIDTHS = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class PcmFormat:
    """The format of raw samples: rate in Hz, bytes of a sample, channels.

    Raises
    ------
    InvalidAudio : for a width that samples do not have.
    """

    rate: int
    width: int
    channels: int

    def __post_init__(self) -> None:
        if self.width not in WIDTHS:
            raise InvalidAudio(f"Samples of {self.width} bytes are not supported: 1 to 4 are.")


def read_format(data: dict[str, Any]) -> PcmFormat:
    """Read the format of an audio chunk.

    Raises
    ------
    InvalidAudio : where a field is missing or no whole number.
    """
    values = {}
    for name in ("rate", "width", "channels"):
        value = data.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidAudio(f"The '{name}' of an audio-chunk is missing, or no whole number.")
        values[name] = value
    return PcmFormat(**values)


class To16Bit:
    """Converts samples of 1 to 4 bytes to s16le; pieces may break off anywhere.

    Samples of one byte are unsigned, as in WAV files. Of wider ones, the upper 16 bits are kept.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._partial = b""

    def push(self, data: bytes) -> bytes:
        """Convert the next bytes, up to the last whole sample."""
        if self._width == 2:
            return data
        data = self._partial + data
        end = len(data) - len(data) % self._width
        self._partial = data[end:]
        samples = np.frombuffer(data, np.uint8, count=end).reshape(-1, self._width)
        if self._width == 1:
            return ((samples.astype(np.int16) - 128) << 8).astype("<i2").tobytes()
        return samples[:, -2:].tobytes()
