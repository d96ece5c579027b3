"""Transcripts as plain text and as JSON, and where on disk they go."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

from client.transcript import Transcript
from specwhisper.errors import InvalidRequest
from specwhisper.types import Segment


class OutputFormat(StrEnum):
    """How a transcript is written."""

    TXT = "txt"
    JSON = "json"


def render(transcript: Transcript, audio: Path, output_format: OutputFormat) -> str:
    """Write the transcript of ``audio`` in a format, with a final newline."""
    if output_format is OutputFormat.JSON:
        return json.dumps(to_json(transcript, audio), ensure_ascii=False, indent=2) + "\n"
    return "".join(f"{text}\n" for text in map(one_line, transcript.segments) if text)


def one_line(segment: Segment) -> str:
    """Give a segment's text without line breaks and surrounding spaces."""
    return " ".join(segment.text.split())


def to_json(transcript: Transcript, audio: Path) -> dict[str, Any]:
    """Lay a transcript out for machines; every duration names its unit."""
    statistics = transcript.statistics
    return {
        "audio": str(audio),
        "text": transcript.text,
        "language": transcript.language,
        "duration_s": transcript.duration_s,
        "segments": [
            {
                "start_s": segment.start_s,
                "end_s": segment.end_s,
                "text": segment.text,
                "tokens": list(segment.tokens),
                "confidence": segment.confidence,
            }
            for segment in transcript.segments
        ],
        "model": asdict(transcript.model),
        "statistics": {
            **asdict(statistics),
            "acceptance_rate": statistics.acceptance_rate,
            "tokens_per_pass": statistics.tokens_per_pass,
            "elapsed_s": transcript.elapsed_s,
            "real_time_factor": transcript.real_time_factor,
        },
    }


def prepare_outputs(audios: Sequence[Path], folder: Path, output_format: OutputFormat) -> list[Path]:
    """Make the folder and name a file for each transcript, before any work is done."""
    paths = [folder / f"{audio.stem}.{output_format}" for audio in audios]
    for path in paths:
        rivals = [str(audio) for audio, its_path in zip(audios, paths, strict=True) if its_path == path]
        if len(rivals) > 1:
            raise InvalidRequest(
                f"{' and '.join(rivals)} would both be written to {path}; rename one of them."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"The folder {folder} cannot be made: {error.strerror}.") from error
    return paths


def write(path: Path, text: str) -> None:
    """Write a transcript to its file."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"The transcript cannot be written to {path}: {error.strerror}.") from error
