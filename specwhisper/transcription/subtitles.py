"""Lay segments out as subtitles: the times of each cue, and its lines of words.

The options and their effects are openai/whisper's. Where words have times, a cue lasts from its first word to
its last; otherwise it has the times of its segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from specwhisper.errors import InvalidRequest
from specwhisper.printable import blanked
from specwhisper.transcription.speakers import by_speaker
from specwhisper.types import Segment, Word
from specwhisper.validated import called, switch, validate, whole

HIGHLIGHT = ("\x0e", "\x0f")  # around the spoken word: shift out and in, of which a text is cleared
PAUSE_S = 3.0  # a longer pause ends a cue

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
    highlight_words: bool = switch(False, "Underlined current word in srt and vtt.")

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
        whole = (Cue(*_times(s), one_line(s.text), s.speaker) for s in by_speaker(segments))
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


def _times(segment: Segment) -> tuple[float, float]:
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
