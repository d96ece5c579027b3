"""Headers of WAV files whose samples arrive in pieces."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from specwhisper.audio.decode import is_open_ended
from specwhisper.errors import InvalidAudio

RIFF, WAVE = b"RIFF", b"WAVE"
RIFF_BYTES = 12  # "RIFF", size, "WAVE"
CHUNK = Struct("<4sI")
FMT = Struct("<HHIIHH")  # format, channels, samples per second, bytes per second, bytes per frame, bits
MAX_FMT_BYTES = 40
MAX_HEADER_BYTES = 64 * 1024
EXTENSIBLE = 0xFFFE  # the actual format follows the fields that all formats have
EXTENSIBLE_FORMAT_OFFSET = 24
PCM_16 = (1, 16)


class WavHeader(NamedTuple):
    """The format of a WAV file's samples, and where they are.

    Attributes
    ----------
    format : WAV's number of it, and bits per sample; :data:`PCM_16`, for example.
    start : offset of the first sample.
    num_bytes : length of all samples; ``None`` if that is not known.
    """

    format: tuple[int, int]
    num_channels: int
    sample_rate: int
    start: int
    num_bytes: int | None


def is_wav(head: bytes) -> bool:
    return head[:4] == RIFF and head[8:RIFF_BYTES] == WAVE


def read_wav_header(head: bytes) -> WavHeader | None:
    """Read a WAV file's chunks up to its samples; ``None`` if more bytes are needed."""
    found, start = None, RIFF_BYTES
    while start <= MAX_HEADER_BYTES:
        if len(head) < start + CHUNK.size:
            return None
        name, size = CHUNK.unpack_from(head, start)
        start += CHUNK.size
        if name == b"data":
            if found is None:
                raise InvalidAudio("A WAV file has no format chunk before its samples.")
            # Recorders that cannot seek back leave the size at its maximum, or at 0.
            return WavHeader(*found, start, None if size == 0 or is_open_ended(size) else size)
        if name == b"fmt ":
            end = start + min(size, MAX_FMT_BYTES)
            if len(head) < end:
                return None
            found = _read_format(head[start:end])
        start += size + size % 2
    raise InvalidAudio(f"A WAV file has no samples in its first {MAX_HEADER_BYTES} bytes.")


def _read_format(chunk: bytes) -> tuple[tuple[int, int], int, int]:
    if len(chunk) < FMT.size:
        raise InvalidAudio(f"The format of a WAV file has {len(chunk)} bytes: it must have {FMT.size}.")
    number, num_channels, sample_rate, _, _, num_bits = FMT.unpack_from(chunk)
    if number == EXTENSIBLE and len(chunk) >= EXTENSIBLE_FORMAT_OFFSET + 2:
        number = int.from_bytes(chunk[EXTENSIBLE_FORMAT_OFFSET : EXTENSIBLE_FORMAT_OFFSET + 2], "little")
    return (number, num_bits), num_channels, sample_rate
