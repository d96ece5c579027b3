"""Find the links of a file: recordings that were joined, byte after byte.

Radio streams, and recorders that start again, write such files. Decoders read the first link only, or the
others with the first one's parameters.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from specwhisper.errors import InvalidAudio

BLOCK_BYTES = 1 << 20
MAX_MARK_BYTES = 128
MAX_LINKS = 1_000  # a day of songs; opening each takes milliseconds, however short it is

# By what a file begins with: the beginning of a link. Decoders of MP3 find it themselves.
_EBML = rb"\x1aE\xdf\xa3.{1,60}?\x42\x82.(?:matroska|webm)"
_MP4 = rb"\0\0\0[\x10-\xff]ftyp[\x20-\x7e]{4}"
# WavPack's block 0; of several such, for more than two channels, the first one has a bit set.
_WAVPACK = (
    rb"wvpk.{4}.\x04\0.{5}\0{4}.{5}[" + re.escape(bytes(each for each in range(256) if each & 8)) + rb"]"
)
MARKS = {
    b"OggS": re.compile(rb"OggS\0([\0-\7])", re.DOTALL),
    b"FORM": re.compile(rb"FORM.{4}AIF[FC](?:COMM|FVER|COMT)", re.DOTALL),
    b".snd": re.compile(rb"\.snd\x00\x00\x00[\x18-\xff]", re.DOTALL),
    b"TTA1": re.compile(rb"TTA1[\x01-\x03]\x00", re.DOTALL),
    b"caff": re.compile(rb"caff\x00\x01\x00\x00desc", re.DOTALL),
    b"fLaC": re.compile(rb"fLaC[\0\x80]\0\0\x22", re.DOTALL),
    b"RIFF": re.compile(rb"RIFF.{4}WAVE(?:fmt |JUNK|bext|LIST)", re.DOTALL),
    b"riff": re.compile(rb"riff\.\x91\xcf\x11.{16}wave\xf3\xac", re.DOTALL),
    b"wvpk": re.compile(_WAVPACK, re.DOTALL),
    b"\x1aE\xdf\xa3": re.compile(_EBML, re.DOTALL),
    b"ftyp": re.compile(_MP4, re.DOTALL),
}
BEGINS_STREAM = 2  # flag of an Ogg page
TS_BYTES = 188  # an MPEG-TS packet's
# A packet that begins the table of all programs, or that of one's tracks: its number, and the table.
TABLE = re.compile(rb"G([\x40-\x5f].)[\x10-\x1f]\x00([\x00\x02]\xb0.{32})", re.DOTALL)
ALL_PROGRAMS = b"\x40\x00"


def links(source: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Yield each link as a file of its own; the file itself if it has only one."""
    starts = list(islice(_starts(source), MAX_LINKS + 1))
    if len(starts) > MAX_LINKS:
        raise InvalidAudio(f"{name} is joined from more than {MAX_LINKS} parts: join them as audio.")
    source.seek(0)
    if len(starts) < 2:
        yield source
        return
    starts[0] = 0
    ends = [*starts[1:], source.seek(0, os.SEEK_END)]
    for start, end in zip(starts, ends, strict=True):
        yield io.BufferedReader(_Part(source, start, end))


def _starts(source: BinaryIO) -> Iterator[int]:
    head = source.read(TS_BYTES + 1)
    if head[:1] == head[TS_BYTES:] == b"G":
        yield from _table_changes(source)
    mark = MARKS.get(head[:4]) or MARKS.get(head[4:8])
    if mark is None:
        return
    is_ogg, was_begin = head[:4] == b"OggS", False
    for at, found in _found(source, mark):
        # The streams of one link begin together, each by a page of its own.
        is_begin = not is_ogg or bool(found[1][0] & BEGINS_STREAM)
        if is_begin and not (is_ogg and was_begin):
            yield at
        was_begin = is_begin


def _table_changes(source: BinaryIO) -> Iterator[int]:
    """Yield where the tables of an MPEG-TS name other tracks."""
    tables: dict[bytes, bytes] = {}  # by the number of their packets
    first_at = 0  # where the packets of tables begin, which come together
    yield 0
    for at, found in _found(source, TABLE):
        if at % TS_BYTES == 0:
            packet, table = found[1], found[2]
            first_at = at if packet == ALL_PROGRAMS else first_at
            if tables.setdefault(packet, table) != table:
                tables = {packet: table}
                yield first_at


def _found(source: BinaryIO, mark: re.Pattern[bytes]) -> Iterator[tuple[int, re.Match[bytes]]]:
    source.seek(0)
    data = b""  # what was read last
    end = done = 0  # positions: up to which was read, and up to which marks were found
    while block := source.read(BLOCK_BYTES):
        data = data[-MAX_MARK_BYTES:] + block
        end += len(block)
        at = end - len(data)
        for found in mark.finditer(data, max(0, done - at)):
            done = at + found.end()
            yield at + found.start(), found


class _Part(io.RawIOBase):
    def __init__(self, source: BinaryIO, start: int, end: int) -> None:
        self._source = source
        self._start = start
        self._size = end - start
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._source.seek(self._start + self._at)
        data = self._source.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
