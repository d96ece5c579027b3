"""Transcripts in every format, and where on disk they go."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

from specwhisper.errors import InvalidRequest
from specwhisper.options import DecodingOptions
from specwhisper.transcription.formats import to_srt, to_tsv, to_txt, to_verbose_json, to_vtt
from specwhisper.transcription.subtitles import Layout
from specwhisper_client.transcript import Transcript


class OutputFormat(StrEnum):
    """How a transcript is written."""

    TXT = "txt"
    JSON = "json"
    VERBOSE_JSON = "verbose_json"
    SRT = "srt"
    VTT = "vtt"
    TSV = "tsv"

    @property
    def suffix(self) -> str:
        """What a file of this format ends with."""
        return "json" if self is OutputFormat.VERBOSE_JSON else str(self)


def render(
    transcript: Transcript,
    audio: Path,
    output_format: OutputFormat,
    options: DecodingOptions | None = None,
    layout: Layout | None = None,
) -> str:
    """Write the transcript of ``audio`` in a format, with a final newline."""
    segments, options = transcript.segments, options or DecodingOptions()
    match output_format:
        case OutputFormat.JSON:
            return _dump(to_json(transcript, audio))
        case OutputFormat.VERBOSE_JSON:
            return _dump(
                to_verbose_json(
                    segments,
                    language=transcript.language_name,
                    duration_s=transcript.duration_s,
                    task=options.task,
                    word_timestamps=options.word_timestamps,
                )
            )
        case OutputFormat.SRT:
            return to_srt(segments, layout)
        case OutputFormat.VTT:
            return to_vtt(segments, layout)
        case OutputFormat.TSV:
            return to_tsv(segments)
    return to_txt(segments)


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def to_json(transcript: Transcript, audio: Path) -> dict[str, Any]:
    """Lay a transcript out for machines; every duration names its unit."""
    statistics = transcript.statistics
    return {
        "audio": str(audio),
        "text": transcript.text,
        "language": transcript.language,
        "language_probs": dict(transcript.language_probs),
        "duration_s": transcript.duration_s,
        "segments": [
            {
                "start_s": segment.start_s,
                "end_s": segment.end_s,
                "text": segment.text,
                "tokens": list(segment.tokens),
                "confidence": segment.confidence,
                "avg_logprob": segment.avg_logprob,
                "compression_ratio": segment.compression_ratio,
                "temperature": segment.temperature,
                "no_speech_prob": segment.no_speech_prob,
                "words": [
                    {
                        "start_s": word.start_s,
                        "end_s": word.end_s,
                        "text": word.text,
                        "confidence": word.confidence,
                    }
                    for word in segment.words
                ],
            }
            for segment in transcript.segments
        ],
        "model": asdict(transcript.model),
        "statistics": {
            **asdict(statistics),
            "acceptance_rate": statistics.acceptance_rate,
            "tokens_per_forward": statistics.tokens_per_forward,
            "elapsed_s": transcript.elapsed_s,
            "real_time_factor": transcript.real_time_factor,
        },
    }


def prepare_outputs(
    audios: Sequence[Path], folder: Path, formats: Sequence[OutputFormat]
) -> list[dict[OutputFormat, Path]]:
    """Make the folder and name a file for each transcript and format, before any work is done."""
    outputs = [{form: folder / f"{audio.stem}.{form.suffix}" for form in formats} for audio in audios]
    audios_of: dict[Path, list[str]] = {}
    for audio, paths in zip(audios, outputs, strict=True):
        for path in paths.values():
            audios_of.setdefault(path, []).append(str(audio))
    for path, rivals in audios_of.items():
        if len(rivals) > 1:
            raise InvalidRequest(
                f"{' and '.join(rivals)} would both be written to {path}; rename one of them."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"The folder {folder} cannot be made: {error.strerror}.") from error
    return outputs


def write(path: Path, text: str) -> None:
    """Write a transcript to its file."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"The transcript cannot be written to {path}: {error.strerror}.") from error
