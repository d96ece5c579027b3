"""Segments as subtitles: when each is shown, and how its words fall into lines.

The options and how they cut are openai/whisper's. Without any a cue is a segment and has its times, also
where words carry times; openai/whisper then goes from the first word to the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from specwhisper.errors import InvalidRequest
from specwhisper.types import Segment, Word

SAID = ("\x0e", "\x0f")  # shift out and in, which no transcript holds: formats write their own markup
PAUSE_S = 3.0  # after which a cue does not go on

Line = list[Word]


@dataclass(frozen=True, slots=True)
class Cue:
    """What is shown between two times; lines are separated by line breaks.

    The word that is being said, if one is, stands between the two characters of :data:`SAID`.
    """

    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Layout:
    """How words fall into lines; they must carry times.

    Attributes
    ----------
    max_line_width : characters of a line.
    max_line_count : lines of a cue, which then may hold the end of one segment and the beginning of the next.
    max_words_per_line : words of a cue; it is one line then.
    highlight_words : underline each word while it is said.
    """

    max_line_width: int | None = None
    max_line_count: int | None = None
    max_words_per_line: int | None = None
    highlight_words: bool = False

    def __post_init__(self) -> None:
        for name in ("max_line_width", "max_line_count", "max_words_per_line"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= 1):
                raise InvalidRequest(f"{name} is {value!r}: it must be a whole number of at least 1.")
        if self.max_line_count is not None and self.max_line_width is None:
            raise InvalidRequest("max_line_count has no effect without max_line_width: give both.")
        if self.max_words_per_line is not None and self.max_line_width is not None:
            raise InvalidRequest("max_words_per_line and max_line_width contradict each other: choose one.")


def cues(segments: Sequence[Segment], layout: Layout | None = None) -> Iterator[Cue]:
    """Give the subtitles of a transcript: a cue per segment, or as the layout has it."""
    if layout is None or layout == Layout():
        whole = (Cue(s.start_s, s.end_s, one_line(s.text)) for s in segments)
        yield from (cue for cue in whole if cue.text)
        return
    for lines in _cut(segments, layout):
        words = [word for line in lines for word in line]
        if not layout.highlight_words:
            yield Cue(words[0].start_s, words[-1].end_s, _joined(lines))
            continue
        last_s = words[0].start_s
        for word in words:
            if word.start_s > last_s:
                yield Cue(last_s, word.start_s, _joined(lines))
            yield Cue(word.start_s, word.end_s, _joined(lines, word))
            last_s = word.end_s


def one_line(text: str) -> str:
    """Give a text without line breaks and surrounding spaces."""
    return " ".join(text.split())


def _cut(segments: Iterable[Segment], layout: Layout) -> Iterator[list[Line]]:
    """Cut the words into cues of lines; the first word of a line has no space before it."""
    runs_on = layout.max_line_count is not None
    lines: list[Line] = []
    width, before_s = 0, inf
    for segment in segments:
        said = [word for word in segment.words if word.text.strip()]
        for at, word in enumerate(said):
            is_pause = runs_on and word.start_s - before_s > PAUSE_S
            begins = at % layout.max_words_per_line == 0 if layout.max_words_per_line else at == 0
            ends_cue = bool(lines) and begins and not runs_on
            fits = width + len(word.text) <= (layout.max_line_width or inf)
            before_s = word.start_s
            if lines and fits and not is_pause and not ends_cue:
                lines[-1].append(word)
                width += len(word.text)
                continue
            is_full = layout.max_line_count is not None and len(lines) >= layout.max_line_count
            if lines and (ends_cue or is_full or is_pause):
                yield lines
                lines = []
            first = replace(word, text=word.text.strip())
            lines.append([first])
            width = len(first.text)
    if lines:
        yield lines


def _joined(lines: Sequence[Line], said: Word | None = None) -> str:
    """Write lines, with the word that is being said underlined."""
    return "\n".join("".join(_shown(word, word is said) for word in line) for line in lines)


def _shown(word: Word, is_said: bool) -> str:
    if not is_said:
        return word.text
    spaces = word.text[: len(word.text) - len(word.text.lstrip())]
    return f"{spaces}{SAID[0]}{word.text.lstrip()}{SAID[1]}"
