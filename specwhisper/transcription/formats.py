"""Write transcripts in the formats of openai/whisper and OpenAI's API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from specwhisper.options import Task
from specwhisper.transcription.speakers import by_speaker
from specwhisper.transcription.subtitles import HIGHLIGHT, Cue, Layout, cues, one_line
from specwhisper.types import Segment, TimeOrder, Word


def to_txt(segments: Iterable[Segment]) -> str:
    """Write a line per segment, or per speaker in it."""
    texts = ((segment.speaker, one_line(segment.text)) for segment in by_speaker(segments))
    return "".join(f"{said_by(speaker)}{text}\n" for speaker, text in texts if text)


def to_srt(segments: Sequence[Segment], layout: Layout | None = None) -> str:
    return "\n".join(srt_blocks(segments, layout))


def srt_blocks(segments: Sequence[Segment], layout: Layout | None = None) -> Iterator[str]:
    """Yield each SubRip subtitle; a line break stands between two."""
    for number, cue in enumerate(cues(segments, layout), start=1):
        text = _underlined(_without_arrows(f"{said_by(cue.speaker)}{cue.text}"))
        yield f"{number}\n{_times(cue, ',')}\n{text}\n"


def to_vtt(segments: Sequence[Segment], layout: Layout | None = None) -> str:
    return "\n".join(vtt_blocks(segments, layout))


def vtt_blocks(segments: Sequence[Segment], layout: Layout | None = None) -> Iterator[str]:
    """Yield the header and each WebVTT subtitle; a line break stands between two."""
    yield "WEBVTT\n"
    for cue in cues(segments, layout):
        voice = f"<v {_escaped(one_line(cue.speaker)).replace('>', '&gt;')}>" if cue.speaker else ""
        yield f"{_times(cue, '.')}\n{voice}{_underlined(_escaped(_without_arrows(cue.text)))}\n"


def to_tsv(segments: Sequence[Segment]) -> str:
    """Write a table of start and end in milliseconds, and text."""
    rows = [
        f"{round(cue.start_s * 1000)}\t{round(cue.end_s * 1000)}\t{said_by(cue.speaker)}{cue.text}\n"
        for cue in cues(segments)
    ]
    return "".join(["start\tend\ttext\n", *rows])


def to_unsure(words: Iterable[Word]) -> str:
    """Write a table of start and end in milliseconds, probability, and word."""
    lines = ["start\tend\tprobability\tword\n"]
    for word in words:
        times = f"{round(word.start_s * 1000)}\t{round(word.end_s * 1000)}"
        lines.append(f"{times}\t{word.confidence:.3f}\t{one_line(word.text)}\n")
    return "".join(lines)


def to_verbose_json(
    segments: Sequence[Segment],
    *,
    language: str,
    duration_s: float,
    task: Task = Task.TRANSCRIBE,
    word_timestamps: bool = False,
    multilingual: bool = False,
) -> dict[str, Any]:
    """Return a transcript in the form of OpenAI's ``verbose_json``; times in seconds.

    A word's ``probability`` is openai/whisper's.

    Parameters
    ----------
    language : its English name, such as "german".
    word_timestamps : whether to add a list of words even if there are none.
    multilingual : whether each segment has its language.
    """
    text = "".join(segment.text for segment in segments).strip()
    document = verbose_head(text, language=language, duration_s=duration_s, task=task)
    document["segments"] = [
        verbose_segment(number, segment, has_language=multilingual) for number, segment in enumerate(segments)
    ]
    words = [verbose_word(word) for word in spoken_words(segments)]
    if words or word_timestamps:
        document["words"] = words
    return document


def verbose_head(text: str, *, language: str, duration_s: float, task: Task) -> dict[str, Any]:
    """Return the members of :func:`to_verbose_json` before segments and words."""
    return {"task": str(task), "language": language, "duration": duration_s, "text": text}


def verbose_segment(number: int, segment: Segment, *, has_language: bool = False) -> dict[str, Any]:
    """Return one segment of :func:`to_verbose_json`."""
    return {
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
        **({"language": segment.language} if has_language else {}),
        **speaker_member(segment),
    }


def spoken_words(segments: Iterable[Segment]) -> Iterator[Word]:
    """Yield the words of all segments that are more than a space."""
    return (word for segment in segments for word in segment.words if word.text.strip())


def verbose_word(word: Word) -> dict[str, Any]:
    return {
        "word": word.text.strip(),
        "start": word.start_s,
        "end": word.end_s,
        "probability": word.confidence,
        **speaker_member(word),
    }


def to_diarized_json(segments: Sequence[Segment], *, duration_s: float, task: Task) -> dict[str, Any]:
    """Return a transcript in the form of OpenAI's ``diarized_json``."""
    spoken = [segment for segment in TimeOrder()(by_speaker(segments)) if segment.text.strip()]
    return {
        "task": str(task),
        "duration": duration_s,
        "text": "".join(segment.text for segment in segments).strip(),
        "segments": [diarized_segment(number, segment) for number, segment in enumerate(spoken)],
    }


def diarized_segment(number: int, segment: Segment) -> dict[str, Any]:
    """Return one segment of :func:`to_diarized_json`."""
    return {
        "type": "transcript.text.segment",
        "id": f"seg_{number}",
        "start": segment.start_s,
        "end": segment.end_s,
        "text": segment.text,
        "speaker": segment.speaker,
    }


def speaker_member(spoken: Segment | Word) -> dict[str, str]:
    """Return the member with the speaker; none where no speakers were looked for."""
    return {"speaker": spoken.speaker} if spoken.speaker else {}


def said_by(speaker: str) -> str:
    """Return what a line of text begins with."""
    return f"{one_line(speaker)}: " if speaker else ""


def clock(time_s: float, point: str) -> str:
    """Write a time as ``HH:MM:SS.mmm``, with the given mark before the milliseconds."""
    total_ms = round(time_s * 1000)
    minutes, ms = divmod(total_ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{ms // 1000:02}{point}{ms % 1000:03}"


def _times(cue: Cue, point: str) -> str:
    return f"{clock(cue.start_s, point)} --> {clock(cue.end_s, point)}"


def _without_arrows(text: str) -> str:
    """Replace arrows, which mark a line of times."""
    return text.replace("-->", "->")


def _escaped(text: str) -> str:
    """Escape the characters that WebVTT reads as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _underlined(text: str) -> str:
    """Underline the highlighted word, as both formats do."""
    return text.replace(HIGHLIGHT[0], "<u>").replace(HIGHLIGHT[1], "</u>")
