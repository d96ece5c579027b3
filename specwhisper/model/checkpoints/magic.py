"""Recognise the format of a file by its first bytes."""

from __future__ import annotations

import struct
from enum import StrEnum
from pathlib import Path


class FileFormat(StrEnum):
    """Formats of files that hold a model, whether they can be read or not."""

    CTRANSLATE2 = "CTranslate2"
    GGML = "ggml"
    GGUF = "GGUF"
    PYTORCH = "PyTorch"
    OLD_PYTORCH = "old PyTorch"
    SAFETENSORS = "safetensors"
    GIT_LFS = "Git LFS"


BEGINNINGS = {
    b"lmgg": FileFormat.GGML,
    b"GGUF": FileFormat.GGUF,
    b"PK\x03\x04": FileFormat.PYTORCH,  # a zip archive
    b"\x80\x02": FileFormat.OLD_PYTORCH,  # a pickle
    b"version https://git-lfs": FileFormat.GIT_LFS,
}
MAX_SPEC_VERSION = 12  # of CTranslate2's files; Whisper models have 6


def format_of(path: Path) -> FileFormat | None:
    """Return the format of a file, or ``None`` for another one."""
    with path.open("rb") as file:
        first = file.read(64)
    for beginning, found in BEGINNINGS.items():
        if first.startswith(beginning):
            return found
    if first[8:9] == b"{":  # after the length of a header
        return FileFormat.SAFETENSORS
    if len(first) > 6:
        version, num_bytes = struct.unpack_from("<IH", first)
        if 0 < version <= MAX_SPEC_VERSION and first[6 : 6 + num_bytes].endswith(b"Spec\0"):
            return FileFormat.CTRANSLATE2
    return None
