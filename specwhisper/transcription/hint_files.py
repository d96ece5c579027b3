"""Read a hint from a file: captions, a transcript, or plain text.

Only the text of captions is read. The target verifies it, so an unusual file costs nothing but time.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from glob import escape
from pathlib import Path

from specwhisper.errors import InvalidRequest
from specwhisper.options import MAX_HINT_BYTES

# None of these patterns begins twice in one stretch of text, or looks far: their time is linear.
TIMES = re.compile(r"^.*\d:\d\d(?:[.,]\d{1,9})?[ \t]{0,9}-->.*$", re.MULTILINE)  # of SRT and WebVTT
TAG = re.compile(r"<[/!]?[\w-][^<>]*>")  # another "<" is text
OVERRIDE = re.compile(r"\{[^{}]*\}")  # ASS's, which SRT may have too
DRAWING = re.compile(r"\{[^{}]*\\p[1-9]")  # lines, and no text
# TTML's; a file may name a namespace.
BODY = re.compile(r"<(?:\w+:)?body\b[^<>]*>")
PARAGRAPH_END = re.compile(r"</(?:\w+:)?p>")
LINE_BREAK = re.compile(r"<(?:\w+:)?br\b[^<>]*>")


def _timed(content: str) -> list[str]:
    """Return the captions of SRT or WebVTT: what is between their times and an empty line."""
    return [following.partition("\n\n")[0] for following in TIMES.split(content)[1:]]


def _ass(content: str) -> list[str]:
    """Return the captions of ASS in the order of their times."""
    events = [line.split(",", 9) for line in content.split("\n") if line.startswith("Dialogue:")]
    texts = [fields[-1] for fields in sorted(events, key=lambda fields: fields[1:2])]
    return [re.sub(r"\\[nN]", "\n", text).replace(r"\h", " ") for text in texts if not DRAWING.search(text)]


def _ttml(content: str) -> list[str]:
    """Return the paragraphs of TTML; line breaks of the file are none of their text."""
    body = "".join(BODY.split(content, 1)[1:])
    paragraphs = PARAGRAPH_END.split(body)[:-1]
    return [LINE_BREAK.sub("\n", " ".join(paragraph.split())) for paragraph in paragraphs]


READERS = {".srt": _timed, ".vtt": _timed, ".ass": _ass, ".ssa": _ass, ".ttml": _ttml, ".dfxp": _ttml}


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
    suffixes = [each for suffix in (*READERS, ".txt") for each in (suffix, suffix.upper())]
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
    if suffix not in READERS:
        content = PRINTED_TIME.sub("", content)
        if TIMES.search(content) or content.lstrip().startswith("<?xml"):
            raise InvalidRequest(f"The hint {path} holds captions: name it .srt, .vtt or .ttml.")
        return content
    captions = READERS[suffix](content)
    if content.strip() and not captions:
        raise InvalidRequest(f"The hint {path} does not hold captions: call a file of plain text .txt.")
    return "\n".join(_once(html.unescape(TAG.sub("", OVERRIDE.sub("", each))) for each in captions))


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
