"""Transcripts as text, subtitles and tables, in the formats that openai/whisper and OpenAI's API write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specwhisper.options import Task
from specwhisper.types import Segment


def one_line(text: str) -> str:
    """Give a text without line breaks and surrounding spaces."""
    return " ".join(text.split())


def to_txt(segments: Iterable[Segment]) -> str:
    """Write a line per segment."""
    return "".join(f"{text}\n" for text in (one_line(segment.text) for segment in segments) if text)


def to_srt(segments: Iterable[Segment]) -> str:
    """Write SubRip subtitles."""
    cues = [
        f"{number}\n{clock(start_s, ',')} --> {clock(end_s, ',')}\n{text}\n"
        for number, (start_s, end_s, text) in enumerate(_cues(segments), start=1)
    ]
    return "\n".join(cues)


def to_vtt(segments: Iterable[Segment]) -> str:
    """Write WebVTT subtitles."""
    cues = [
        f"{clock(start_s, '.')} --> {clock(end_s, '.')}\n{_escaped(text)}\n"
        for start_s, end_s, text in _cues(segments)
    ]
    return "\n".join(["WEBVTT\n", *cues])


def to_tsv(segments: Iterable[Segment]) -> str:
    """Write a table of start and end in milliseconds, and text."""
    rows = [
        f"{round(start_s * 1000)}\t{round(end_s * 1000)}\t{text}\n"
        for start_s, end_s, text in _cues(segments)
    ]
    return "".join(["start\tend\ttext\n", *rows])


def to_verbose_json(
    segments: Sequence[Segment], *, language: str, duration_s: float, task: Task = Task.TRANSCRIBE
) -> dict[str, Any]:
    """Lay a transcript out as OpenAI's API does with ``response_format=verbose_json``; times in seconds."""
    document: dict[str, Any] = {
        "task": str(task),
        "language": language,
        "duration": duration_s,
        "text": "".join(segment.text for segment in segments).strip(),
        "segments": [
            {
                "id": number,
                "seek": segment.seek,
                "start": segment.start_s,
                "end": segment.end_s,
                "text": segment.text,
                "tokens": list(segment.tokens),
                "temperature": segment.temperature,
                "avg_logprob": segment.avg_logprob,
                "compression_ratio": segment.compression_ratio,
                "no_speech_prob": segment.no_speech_prob,
            }
            for number, segment in enumerate(segments)
        ],
    }
    words = [word for segment in segments for word in segment.words]
    if words:
        document["words"] = [
            {
                "word": word.text.strip(),
                "start": word.start_s,
                "end": word.end_s,
                "probability": word.confidence,
            }
            for word in words
        ]
    return document


def clock(time_s: float, point: str) -> str:
    """Write a time as ``HH:MM:SS.mmm``, with whatever mark stands before the milliseconds."""
    total_ms = round(time_s * 1000)
    minutes, ms = divmod(total_ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{ms // 1000:02}{point}{ms % 1000:03}"


def _cues(segments: Iterable[Segment]) -> list[tuple[float, float, str]]:
    """Give start, end and text of what is said; an arrow would end a subtitle's line of times."""
    said = [(s.start_s, s.end_s, one_line(s.text).replace("-->", "->")) for s in segments]
    return [cue for cue in said if cue[2]]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
