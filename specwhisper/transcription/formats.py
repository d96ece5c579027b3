"""Write transcripts in the formats of openai/whisper and OpenAI's API.

Subtitles have openai/whisper's options, with their effects. Where words have times, a cue lasts from its
first word to its last; otherwise it has the times of its segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from specwhisper.errors import InvalidRequest
from specwhisper.options import Task
from specwhisper.printable import blanked
from specwhisper.transcription.speakers import by_speaker
from specwhisper.types import Segment, TimeOrder, Word
from specwhisper.validated import called, switch, validate, whole

HIGHLIGHT = ("\x0e", "\x0f")  # around the spoken word: shift out and in, of which a text is cleared
PAUSE_S = 3.0  # a longer pause ends a cue

# The keys of a segment in ``verbose_json``.
VERBOSE = "seek start end text tokens temperature avg_logprob compression_ratio no_speech_prob".split()

Line = list[Word]


@dataclass(frozen=True, slots=True)
class Cue:
    """A text that is shown between two times; lines are separated by line breaks.

    The highlighted word, if there is one, stands between the two characters of :data:`HIGHLIGHT`. The speaker
    is empty where unknown.
    """

    start_s: float
    end_s: float
    text: str
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """How words are laid out in lines; they must have times."""

    max_line_width: int | None = whole(
        None, 1, inf, "Most characters in a line of srt and vtt, with word timestamps."
    )
    max_line_count: int | None = whole(None, 1, inf, "Most lines in a cue, which then may span segments.")
    max_words_per_line: int | None = whole(  # a cue then has one line
        None, 1, inf, "Most words in a cue of srt and vtt."
    )
    highlight_words: bool = switch(False, "Underline the current word in srt and vtt.")

    def __post_init__(self) -> None:
        validate(self)
        if self.max_line_count is not None and self.max_line_width is None:
            raise InvalidRequest(
                f"{called('max_line_count')} has no effect without {called('max_line_width')}: set both."
            )
        if self.max_words_per_line is not None and self.max_line_width is not None:
            raise InvalidRequest(
                f"{called('max_words_per_line')} and {called('max_line_width')} contradict each other: "
                "choose one."
            )


def cues(segments: Sequence[Segment], layout: Layout | None = None) -> Iterator[Cue]:
    """Yield cues in order: one per segment, or by the layout."""
    end_s = 0.0
    for cue in _cues(segments, layout):
        start_s = max(cue.start_s, end_s)
        end_s = max(cue.end_s, start_s)
        yield replace(cue, start_s=start_s, end_s=end_s)


def _cues(segments: Sequence[Segment], layout: Layout | None) -> Iterator[Cue]:
    if layout is None or layout == Layout():
        whole = (Cue(*_span(s), one_line(s.text), s.speaker) for s in by_speaker(segments))
        yield from (cue for cue in whole if cue.text)
        return
    for lines in _cut(segments, layout):
        words = [word for line in lines for word in line]
        speaker = words[0].speaker
        if not layout.highlight_words:
            yield Cue(words[0].start_s, words[-1].end_s, _joined(lines), speaker)
            continue
        last_s = words[0].start_s
        for word in words:
            if word.start_s > last_s:
                yield Cue(last_s, word.start_s, _joined(lines), speaker)
            yield Cue(word.start_s, word.end_s, _joined(lines, word), speaker)
            last_s = word.end_s


def _span(segment: Segment) -> tuple[float, float]:
    spoken: Sequence[Word | Segment] = [word for word in segment.words if word.text.strip()] or [segment]
    return spoken[0].start_s, spoken[-1].end_s


def one_line(text: str) -> str:
    """Return a text without control characters and surrounding spaces."""
    return " ".join(blanked(text).split())


def _cut(segments: Iterable[Segment], layout: Layout) -> Iterator[list[Line]]:
    """Cut words into cues of lines; no line begins with a space."""
    runs_on = layout.max_line_count is not None
    lines: list[Line] = []
    width, before_s, speaker = 0, inf, ""
    for segment in segments:
        spoken = [word for word in segment.words if word.text.strip()]
        for at, word in enumerate(spoken):
            is_break = (runs_on and word.start_s - before_s > PAUSE_S) or word.speaker != speaker
            begins = at % layout.max_words_per_line == 0 if layout.max_words_per_line else at == 0
            ends_cue = bool(lines) and begins and not runs_on
            fits = width + len(word.text) <= (layout.max_line_width or inf)
            before_s, speaker = word.start_s, word.speaker
            if lines and fits and not is_break and not ends_cue:
                lines[-1].append(word)
                width += len(word.text)
                continue
            is_full = layout.max_line_count is not None and len(lines) >= layout.max_line_count
            if lines and (ends_cue or is_full or is_break):
                yield lines
                lines = []
            first = replace(word, text=word.text.strip())
            lines.append([first])
            width = len(first.text)
    if lines:
        yield lines


def _joined(lines: Sequence[Line], highlighted: Word | None = None) -> str:
    """Join lines, with one word marked as highlighted."""
    return "\n".join("".join(_shown(word, word is highlighted) for word in line) for line in lines)


def _shown(word: Word, is_highlighted: bool) -> str:
    text = blanked(word.text)
    if not is_highlighted:
        return text
    spaces = text[: len(text) - len(text.lstrip())]
    return f"{spaces}{HIGHLIGHT[0]}{text.lstrip()}{HIGHLIGHT[1]}"


def to_txt(segments: Iterable[Segment]) -> str:
    """Write a line per segment, or per speaker in it."""
    texts = ((segment.speaker, one_line(segment.text)) for segment in by_speaker(segments))
    return "".join(f"{said_by(speaker)}{text}\n" for speaker, text in texts if text)


def to_srt(segments: Sequence[Segment], layout: Layout | None = None) -> str:
    blocks = []
    for number, cue in enumerate(cues(segments, layout), start=1):
        text = _underlined(_without_arrows(f"{said_by(cue.speaker)}{cue.text}"))
        blocks.append(f"{number}\n{_times(cue, ',')}\n{text}\n")
    return "\n".join(blocks)


def to_vtt(segments: Sequence[Segment], layout: Layout | None = None) -> str:
    blocks = ["WEBVTT\n"]
    for cue in cues(segments, layout):
        voice = f"<v {_escaped(one_line(cue.speaker)).replace('>', '&gt;')}>" if cue.speaker else ""
        text = _underlined(_escaped(_without_arrows(cue.text)))
        blocks.append(f"{_times(cue, '.')}\n{voice}{text}\n")
    return "\n".join(blocks)


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
    """Return OpenAI's ``verbose_json``; a word's ``probability`` is openai/whisper's.

    Parameters
    ----------
    language : its English name, such as "german".
    word_timestamps : whether to add a list of words even if there are none.
    multilingual : whether each segment has its language.
    """
    document: dict[str, Any] = {
        "task": str(task),
        "language": language,
        "duration": duration_s,
        "text": "".join(segment.text for segment in segments).strip(),
        "segments": [
            {
                "id": number,
                **{key: segment[key] for key in VERBOSE},
                "tokens": list(segment.tokens),
                **({"language": segment.language} if multilingual else {}),
                **speaker_member(segment),
            }
            for number, segment in enumerate(segments)
        ],
    }
    words = [
        {
            "word": word.text.strip(),
            **{key: word[key] for key in ("start", "end", "probability")},
            **speaker_member(word),
        }
        for word in spoken_words(segments)
    ]
    if words or word_timestamps:
        document["words"] = words
    return document


def spoken_words(segments: Iterable[Segment]) -> Iterator[Word]:
    """Yield the words of all segments that are more than a space."""
    return (word for segment in segments for word in segment.words if word.text.strip())


def to_diarized_json(segments: Sequence[Segment], *, duration_s: float, task: Task) -> dict[str, Any]:
    """Return a transcript in the form of OpenAI's ``diarized_json``."""
    spoken = [segment for segment in TimeOrder()(by_speaker(segments)) if segment.text.strip()]
    return {
        "task": str(task),
        "duration": duration_s,
        "text": "".join(segment.text for segment in segments).strip(),
        "segments": [
            {
                "type": "transcript.text.segment",
                "id": f"seg_{number}",
                **{key: segment[key] for key in ("start", "end", "text", "speaker")},
            }
            for number, segment in enumerate(spoken)
        ],
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
