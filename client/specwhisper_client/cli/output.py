"""Output formats of a transcription, and the files that it is written to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import uuid4

from specwhisper.errors import InvalidRequest
from specwhisper.transcription.formats import Layout
from specwhisper.transcription.transcription import UNSURE_BELOW, Transcription
from specwhisper_client.cli.recordings import RecordingFile


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
    """Write a transcription to its file, as a whole or not at all."""
    unfinished = path.with_name(f".specwhisper-{uuid4().hex}.tmp")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise InvalidRequest(f"The transcript cannot be written to {path}: {error.strerror}.") from error
    finally:
        unfinished.unlink(missing_ok=True)
