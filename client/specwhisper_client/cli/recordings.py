"""The recordings that arguments name (files, folders and patterns), and the files of their transcripts.

Each has a place: the path of its transcripts below the output folder, and of its hint below the folder of
hints.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from glob import glob, has_magic
from pathlib import Path
from typing import Any
from uuid import uuid4

from specwhisper.audio.decode import AUDIO_SUFFIXES
from specwhisper.errors import InvalidRequest
from specwhisper.transcription.formats import Layout
from specwhisper.transcription.transcription import UNSURE_BELOW, Transcription


@dataclass(frozen=True, slots=True)
class RecordingFile:
    """A recording to transcribe.

    Attributes
    ----------
    path : the file.
    root : the folder that its place starts from: the argument if that is a folder, a file's own folder, or
        the folder before the first wildcard of a pattern.
    place : path of its transcripts below the output folder, without the suffix of a format.
    """

    path: Path
    root: Path
    place: Path

    @property
    def folder(self) -> Path:
        return self.place.parent


def find_recordings(arguments: Iterable[Path]) -> tuple[list[RecordingFile], list[Path]]:
    """Return the recordings in order, each once, and the arguments that name none.

    Folders are searched recursively for files with a suffix of audio or video; names that begin with a dot
    are left out. A pattern's matches are taken as they are. Places keep the folders below each argument. If
    two recordings would share one, all places start from the folder that all arguments have in common. If
    they still share one, they keep their suffixes.
    """
    found: dict[str, RecordingFile] = {}  # by the file's real path
    without: list[Path] = []
    for argument in arguments:
        files = list(_files(argument))
        for path, root in files:
            found.setdefault(os.path.realpath(path), RecordingFile(path, root, _place(path, root)))
        if not files:
            without.append(argument)
    recordings = list(found.values())
    if _shared(recordings):
        folders = (folder for each in recordings for folder in (each.root, each.path.parent))
        common = Path(os.path.commonpath(map(os.path.abspath, folders)))
        recordings = [replace(each, place=_place(each.path, common)) for each in recordings]
    if shared := _shared(recordings):
        kept = [_with_suffix(each) if each.place in shared else each for each in recordings]
        recordings = list(map(_with_suffix, recordings)) if _shared(kept) else kept
    return recordings, without


def _place(path: Path, root: Path) -> Path:
    """Return a path below a folder without its suffix; the name alone if it is not below."""
    path, root = Path(os.path.abspath(path)), Path(os.path.abspath(root))
    return (path.relative_to(root) if path.is_relative_to(root) else Path(path.name)).with_suffix("")


def _with_suffix(recording: RecordingFile) -> RecordingFile:
    return replace(recording, place=recording.folder / recording.path.name)


def _shared(recordings: Iterable[RecordingFile]) -> set[Path]:
    """Return the places that more than one recording has."""
    return {place for place, number in Counter(each.place for each in recordings).items() if number > 1}


def _files(argument: Path) -> Iterator[tuple[Path, Path]]:
    if argument.is_dir():
        yield from ((path, argument) for path in _below(argument))
    elif argument.exists():
        yield argument, argument.parent
    elif has_magic(str(argument)):
        root = next(folder for folder in argument.parents if not has_magic(str(folder)))
        for match in sorted(map(Path, glob(str(argument), recursive=True))):
            yield from ((path, root) for path in (_below(match) if match.is_dir() else [match]))


def _below(folder: Path) -> Iterator[Path]:
    """Yield the recordings in a folder and below it, in order of their names."""
    for name, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for file in sorted(files):
            if not file.startswith(".") and Path(file).suffix.lower() in AUDIO_SUFFIXES:
                yield Path(name, file)


class OutputFormat(StrEnum):
    TXT = "txt"
    JSON = "json"
    VERBOSE_JSON = "verbose_json"
    DIARIZED_JSON = "diarized_json"
    SRT = "srt"
    VTT = "vtt"
    TSV = "tsv"
    UNSURE = "unsure"

    @property
    def suffix(self) -> str:
        if self is OutputFormat.UNSURE:
            return "unsure.tsv"
        return "json" if self.endswith("json") else str(self)


def render(
    transcription: Transcription,
    audio: Path,
    output_format: OutputFormat,
    layout: Layout | None = None,
    unsure_below: float = UNSURE_BELOW,
) -> str:
    """Return the transcription of ``audio`` in a format, with a final newline.

    Parameters
    ----------
    layout : lines of subtitles.
    unsure_below : probability of the words that are listed as unsure.
    """
    arguments: Mapping[OutputFormat, Any] = {
        OutputFormat.JSON: str(audio),
        OutputFormat.SRT: layout,
        OutputFormat.VTT: layout,
        OutputFormat.UNSURE: unsure_below,
    }
    given = [arguments[output_format]] if output_format in arguments else []
    return str(getattr(transcription, f"to_{output_format}")(*given))


def prepare_outputs(
    recordings: Sequence[RecordingFile], folder: Path, formats: Sequence[OutputFormat]
) -> list[dict[OutputFormat, Path]]:
    """Create the folders, and return a path for each recording and format."""
    outputs = [
        {form: folder / each.folder / f"{each.place.name}.{form.suffix}" for form in formats}
        for each in recordings
    ]
    for parent in sorted({folder, *(folder / each.folder for each in recordings)}):
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidRequest(f"The folder {parent} cannot be created: {error.strerror}.") from error
    return outputs


def write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    unfinished = path.with_name(f".specwhisper-{uuid4().hex}.tmp")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        unfinished.unlink(missing_ok=True)
