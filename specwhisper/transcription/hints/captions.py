"""Read the text of captions: SRT, WebVTT, ASS and TTML."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree

import pysubs2

XML_SUFFIXES = (".ttml", ".dfxp")  # of TTML; files that end in .xml are mostly something else
SUFFIXES = (".srt", ".vtt", ".ass", ".ssa", *XML_SUFFIXES)
TIMING = re.compile(r"\d:\d\d[\d.,:]*[ \t]*-->[ \t]*\d")  # of a caption in SRT and WebVTT
# The parser takes these for text of WebVTT: comments, names of captions, and times of words.
NOTE = re.compile(r"(?<=\n\n)NOTE(?:[ \t].*)?(?:\n(?:.+(?:\n|\Z))*|\Z)")
NAME = re.compile(r"(?m)^(?!.*-->).+\n(?=.*-->)")
TAG = re.compile(r"<[^>\n]*>")
MIN_REPEATED_WORDS = 2  # fewer are more likely said again


def text_of_captions(content: str, suffix: str) -> str:
    """Return the text of captions, line by line.

    It is in the order of their times; that of TTML in the order of the file.

    Parameters
    ----------
    suffix : one of :data:`SUFFIXES`, which names the format.

    Raises
    ------
    ValueError : if the content is no such file; empty content is.
    """
    if suffix in XML_SUFFIXES:
        captions: Iterable[str] = _ttml(content)
    else:
        captions = _timed(content, suffix)
    return "\n".join(_once([line.strip() for line in caption.split("\n")] for caption in captions))


def _timed(content: str, suffix: str) -> list[str]:
    if suffix == ".vtt":
        content = TAG.sub("", NAME.sub("", NOTE.sub("", content)))
    try:
        captions = pysubs2.SSAFile.from_string(content, format_=suffix.lstrip("."))
    except Exception as error:  # whatever a parser makes of a broken file
        raise ValueError(str(error)) from error
    captions.sort()
    if content.strip() and not captions:
        raise ValueError("there are none")
    return [html.unescape(each.plaintext) for each in captions if not (each.is_comment or each.is_drawing)]


def _ttml(content: str) -> list[str]:
    # pysubs2 refuses times in frames and ticks, which the text does not need.
    if not content.strip():
        return []
    try:
        document = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error
    return [_text_of(paragraph) for paragraph in document.iterfind(".//{*}p")]


def _text_of(element: ElementTree.Element) -> str:
    parts = [_line(element.text)]
    for child in element:
        parts += ["\n" if child.tag.rpartition("}")[2] == "br" else _text_of(child), _line(child.tail)]
    return "".join(parts)


def _line(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "")  # line breaks of the file are none of the text


def _once(captions: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield lines, without those with which rolling captions repeat the end of the one before."""
    before: list[str] = []
    for caption in captions:
        lines = [line for line in caption if line]
        shared = range(min(len(before), len(lines)), 0, -1)
        repeated = next((num for num in shared if before[-num:] == lines[:num]), 0)
        if sum(len(line.split()) for line in lines[:repeated]) < MIN_REPEATED_WORDS:
            repeated = 0
        yield from lines[repeated:]
        before = lines
