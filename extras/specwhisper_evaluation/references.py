"""Read recordings with their texts from a folder or a Hugging Face dataset."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO, StringIO
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from specwhisper.audio.decode import AUDIO_SUFFIXES
from specwhisper.errors import InvalidRequest, SpecWhisperError

TEXT_COLUMNS = ("text", "transcription", "sentence", "normalized_text", "raw_text")


@dataclass(frozen=True, slots=True)
class Reference:
    name: str
    audio: Path | BinaryIO
    text: str


def from_folder(folder: Path) -> Iterator[Reference]:
    """Find recordings with their texts in any of the usual layouts.

    These are ``NAME.txt`` beside ``NAME.flac``; LibriSpeech's ``*.trans.txt``; and ``metadata.csv`` or
    ``metadata.jsonl`` with the columns ``file_name`` and ``text``.
    """
    if not folder.is_dir():
        raise InvalidRequest(f"The folder {folder} does not exist.")
    texts = dict(_texts(folder))
    found = 0
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in AUDIO_SUFFIXES and (text := texts.get(path.with_suffix(""))) is not None:
            found += 1
            yield Reference(str(path.relative_to(folder)), path, text)
    if not found:
        raise InvalidRequest(
            f"The folder {folder} has no recording with a text: put NAME.txt beside NAME.wav, or name them "
            "in metadata.csv or metadata.jsonl with file_name and text."
        )


def from_dataset(name: str, config: str | None, split: str, limit: int | None) -> Iterator[Reference]:
    """Stream a dataset of the hub, without decoding its audio."""
    try:
        from datasets import Audio, load_dataset
    except ModuleNotFoundError as error:
        raise InvalidRequest("Datasets of the hub need another package: pip install datasets.") from error
    try:
        rows = load_dataset(name, config, split=split, streaming=True)
        rows = rows.cast_column("audio", Audio(decode=False))
        for number, row in enumerate(islice(rows, limit)):
            audio = row["audio"]
            recording = Path(audio["path"]) if audio["bytes"] is None else BytesIO(audio["bytes"])
            yield Reference(str(row.get("id", number)), recording, _text_of(row))
    except SpecWhisperError:
        raise
    except Exception as error:  # the hub's errors are of many kinds
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].removesuffix(".")
        raise InvalidRequest(
            f"Dataset '{name}' cannot be read ({reason}): check name and connection, or name a folder."
        ) from error


def _text_of(row: dict[str, Any]) -> str:
    for column in TEXT_COLUMNS:
        if column in row:
            return str(row[column])
    raise InvalidRequest(f"The dataset has no text: none of the columns {', '.join(TEXT_COLUMNS)}.")


def _texts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield recordings without their suffix, and their texts."""
    for path in sorted(folder.rglob("*.txt")):
        if path.name.endswith(".trans.txt"):
            for line in _read(path).splitlines():
                name, _, text = line.partition(" ")
                yield path.parent / name, text
        else:
            yield path.with_suffix(""), _read(path).strip()
    for path in sorted([*folder.rglob("metadata.csv"), *folder.rglob("metadata.jsonl")]):
        for row in _rows(path):
            if not row.get("file_name") or row.get("text") is None:
                raise InvalidRequest(f"{path} lacks the columns file_name and text, or a value of them.")
            yield (path.parent / row["file_name"]).with_suffix(""), row["text"]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    text = _read(path)
    if path.suffix == ".csv":
        yield from csv.DictReader(StringIO(text, newline=""))
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InvalidRequest(f"Line {number} of {path} is not JSON: {error}.") from error
            if not isinstance(row, dict):
                raise InvalidRequest(f"Line {number} of {path} is not a JSON object.")
            yield row


def _read(path: Path) -> str:
    """Read a text file, with or without a byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"{path} is not UTF-8 ({error.reason} at byte {error.start}): save it as such."
        ) from error
