"""Read a hint from a file: captions, a transcript, or plain text."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from glob import escape
from pathlib import Path
from xml.etree import ElementTree

import pysubs2

from specwhisper.errors import InvalidRequest
from specwhisper.options import MAX_HINT_BYTES

XML_SUFFIXES = (".ttml", ".dfxp")  # TTML; files that end in .xml are mostly something else
SUFFIXES = (".srt", ".vtt", ".ass", ".ssa", *XML_SUFFIXES)
# None of these patterns begins twice in one stretch of text, or looks far: their time is linear.
TIMING = re.compile(r"\d:\d\d(?:[.,]\d{1,9})?[ \t]{0,9}-->[ \t]{0,9}\d")  # a caption's, in SRT and WebVTT
# The parser takes these for text of WebVTT: comments, names of captions, and times of words.
NOTE = re.compile(r"(?<=\n\n)NOTE(?:[ \t].*)?(?:\n(?:.+(?:\n|\Z))*|\Z)")
NAME = re.compile(r"(?m)^(?!.*-->).+\n(?=.*-->)")
TAG = re.compile(r"<[^<>\n]*>")
SRT_TAG = re.compile(r"< {0,9}/? {0,9}[a-zA-Z][^<>]*>")  # another "<" is text
OVERRIDE = re.compile(r"\{[^{}]*\}")  # ASS's, which SRT may have too
DRAWING = re.compile(r"\\p[1-9]")  # in an override: what follows are lines, no text
BLANK_LINES = re.compile(r"\n{3,}")
MAX_ERROR_CHARS = 100  # a parser's, which may quote a whole file


def _timed(content: str, suffix: str) -> list[str]:
    """Return the text of each caption, in the order of their times."""
    content = BLANK_LINES.sub("\n\n", content)
    if suffix == ".vtt":
        content = TAG.sub("", NAME.sub("", NOTE.sub("", content)))
    elif suffix == ".srt":
        content = SRT_TAG.sub("", content)
    try:  # the parser's own patterns for tags are quadratic
        captions = pysubs2.SSAFile.from_string(content, format_=suffix.lstrip("."), keep_html_tags=True)
    except Exception as error:  # whatever a parser makes of a broken file
        raise ValueError(str(error)[:MAX_ERROR_CHARS]) from error
    captions.sort()
    if content.strip() and not captions:
        raise ValueError("there are none")
    return [html.unescape(_plain(each.text)) for each in captions if not each.is_comment]


def _plain(text: str) -> str:
    """Return the text of a caption in ASS, to which all are converted; none of a drawing."""
    if any(DRAWING.search(override) for override in OVERRIDE.findall(text)):
        return ""
    return OVERRIDE.sub("", text).replace(r"\h", " ").replace(r"\n", "\n").replace(r"\N", "\n")


def _ttml(content: str) -> Iterator[str]:
    """Yield the text of each paragraph; an inner one is part of the outer one."""
    # pysubs2 refuses times in frames and ticks, which the text does not need.
    try:
        elements = [ElementTree.fromstring(content)] if content.strip() else []
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from error
    while elements:  # they may be nested deeper than Python's stack
        element = elements.pop()
        if element.tag.rpartition("}")[2] != "p":
            elements += reversed(element)
            continue
        for inner in element.iter():
            if inner.tag.rpartition("}")[2] == "br":
                inner.text = "\0"
        text = " ".join("".join(element.itertext()).split())  # line breaks of the file are none of the text
        yield text.replace("\0", "\n")  # those of the caption are; XML has no NUL


def _once(captions: Iterable[str]) -> Iterator[str]:
    """Yield lines, without those that rolling captions repeat; a single word is more likely said again."""
    before: set[str] = set()
    for caption in captions:
        lines = [line.strip() for line in caption.split("\n") if line.strip()]
        yield from (line for line in lines if line not in before or " " not in line)
        before = set(lines)


# As openai/whisper prints segments, and lines of SBV, which YouTube writes.
PRINTED_TIME = re.compile(
    r"^(?:\[[\d:.]+ --> [\d:.]+\] *|\d+:\d\d:\d\d\.\d{3},\d+:\d\d:\d\d\.\d{3}$)", re.MULTILINE
)
LANGUAGE = re.compile(r"\.[A-Za-z]{2,3}(?:[-_]\w+)*")  # in names of captions, as in talk.en.vtt
MAX_FILE_BYTES = 20 * MAX_HINT_BYTES  # times and styles of captions are many times their text


def read_hint(path: Path | str) -> str:
    """Return the text of a file of captions, or of plain text in UTF-8.

    Captions are SRT, WebVTT, ASS or TTML, transcripts JSON (a member ``text``, or those of ``segments`` or
    ``transcription``) or TSV (its last column), by the name of the file. The times that openai/whisper
    prints before each line of plain text are left out, and those of SBV.

    Raise :class:`InvalidRequest` for a file that cannot be read, has no text, or is of another format
    than its name.
    """
    path = Path(path)
    text = _text_of(path).strip()
    if not text:
        raise InvalidRequest(f"The hint {path} has no text.")
    return text


def find_hint(folder: Path, recording: Path) -> Path | None:
    """Return a recording's file in a folder, by its name; ``None`` without one.

    Its name may have a language, as in ``NAME.en.vtt``, if there is only one such file.
    """
    suffixes = [each for suffix in (*SUFFIXES, ".txt") for each in (suffix, suffix.upper())]
    paths = (folder / f"{recording.stem}{suffix}" for suffix in suffixes)
    if (found := next((path for path in paths if path.is_file()), None)) is not None:
        return found
    named = [
        path
        for path in folder.glob(f"{escape(recording.stem)}.*")
        if path.suffix in suffixes and LANGUAGE.fullmatch(path.stem.removeprefix(recording.stem))
    ]
    return named[0] if len(named) == 1 else None


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:  # a pipe or a device has no size, and may have no end
            content_bytes = file.read(MAX_FILE_BYTES + 1)
        if len(content_bytes) > MAX_FILE_BYTES:
            raise InvalidRequest(
                f"The hint {path} has more than {MAX_FILE_BYTES} bytes: its text may have {MAX_HINT_BYTES}."
            )
        content = content_bytes.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidRequest(f"The hint {path} cannot be read as text: {reason}.") from error
    suffix = path.suffix.lower()
    if suffix == ".json":
        return _text_of_json(path, content)
    if suffix == ".tsv":
        return "\n".join(line.rpartition("\t")[2] for line in content.splitlines()[1:])
    if suffix not in SUFFIXES:
        content = PRINTED_TIME.sub("", content)
        if TIMING.search(content) or content.lstrip().startswith("<?xml"):
            raise InvalidRequest(f"The hint {path} holds captions: name it .srt, .vtt or .ttml.")
        return content
    try:
        captions = _ttml(content) if suffix in XML_SUFFIXES else _timed(content, suffix)
        return "\n".join(_once(captions))
    except ValueError as error:
        raise InvalidRequest(
            f"The hint {path} does not hold captions ({error}): call a file of plain text .txt."
        ) from error


def _text_of_json(path: Path, content: str) -> str:
    try:
        transcript = json.loads(content)
        if "text" not in transcript:  # whisperX's, and whisper.cpp's
            segments = transcript.get("segments") or transcript["transcription"]
            return "\n".join([segment["text"].strip() for segment in segments])
        text = transcript["text"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise InvalidRequest(f"The hint {path} is not a transcript in JSON: it has no text.")
    return text
