"""Transcripts as text, subtitles and tables, in the formats that openai/whisper and OpenAI's API write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specwhisper.options import Task
from specwhisper.transcription.subtitles import SAID, Cue, Layout, cues, one_line
from specwhisper.types import Segment


def to_txt(segments: Iterable[Segment]) -> str:
    """Write a line per segment."""
    return "".join(f"{text}\n" for text in (one_line(segment.text) for segment in segments) if text)


def to_srt(segments: Sequence[Segment], layout: Layout | None = None) -> str:
    """Write SubRip subtitles."""
    written = [
        f"{number}\n{_times(cue, ',')}\n{_underlined(_without_arrows(cue.text))}\n"
        for number, cue in enumerate(cues(segments, layout), start=1)
    ]
    return "\n".join(written)


def to_vtt(segments: Sequence[Segment], layout: Layout | None = None) -> str:
    """Write WebVTT subtitles."""
    written = [
        f"{_times(cue, '.')}\n{_underlined(_escaped(_without_arrows(cue.text)))}\n"
        for cue in cues(segments, layout)
    ]
    return "\n".join(["WEBVTT\n", *written])


def to_tsv(segments: Sequence[Segment]) -> str:
    """Write a table of start and end in milliseconds, and text."""
    rows = [f"{round(cue.start_s * 1000)}\t{round(cue.end_s * 1000)}\t{cue.text}\n" for cue in cues(segments)]
    return "".join(["start\tend\ttext\n", *rows])


def to_verbose_json(
    segments: Sequence[Segment],
    *,
    language: str,
    duration_s: float,
    task: Task = Task.TRANSCRIBE,
    word_timestamps: bool = False,
) -> dict[str, Any]:
    """Lay a transcript out as OpenAI's API does with ``response_format=verbose_json``; times in seconds.

    ``language`` is a name there, such as "german"; a word's ``probability`` is openai/whisper's. With
    ``word_timestamps`` there is a list of words even where none was found.
    """
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
    words = [word for segment in segments for word in segment.words if word.text.strip()]
    if words or word_timestamps:
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


def _times(cue: Cue, point: str) -> str:
    return f"{clock(cue.start_s, point)} --> {clock(cue.end_s, point)}"


def _without_arrows(text: str) -> str:
    """Change what would be read as a line of times."""
    return text.replace("-->", "->")


def _escaped(text: str) -> str:
    """Escape what WebVTT would take for markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _underlined(text: str) -> str:
    """Mark the word that is being said, as both formats do."""
    return text.replace(SAID[0], "<u>").replace(SAID[1], "</u>")
