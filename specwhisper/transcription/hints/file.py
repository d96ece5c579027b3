"""Read a hint from a file: captions, a transcript, or plain text."""

from __future__ import annotations

import json
import re
from glob import escape
from pathlib import Path

from specwhisper.errors import InvalidRequest
from specwhisper.options import MAX_HINT_BYTES
from specwhisper.transcription.hints.captions import SUFFIXES, TIMING, text_of_captions

# As openai/whisper prints segments, and lines of SBV, which YouTube writes.
PRINTED_TIME = re.compile(
    r"^(?:\[[\d:.]+ --> [\d:.]+\] *|\d+:\d\d:\d\d\.\d{3},\d+:\d\d:\d\d\.\d{3}$)", re.MULTILINE
)
LANGUAGE = re.compile(r"\.[A-Za-z]{2,3}(?:[-_]\w+)*")  # in names of captions, as in talk.en.vtt
MAX_FILE_BYTES = 20 * MAX_HINT_BYTES  # times and styles of captions are many times their text


def read_hint(path: Path | str) -> str:
    """Return the text of a file of captions, or of plain text in UTF-8.

    Captions are SRT, WebVTT, ASS or TTML, transcripts JSON (a member ``text``, or those of ``segments`` or
    ``transcription``) or TSV (its last column), by the name of the file. Of plain text, the times that
    openai/whisper prints before each line are left out, and those of SBV.

    Raises
    ------
    InvalidRequest : for a file that cannot be read, has no text, or is of another format than its name.
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
        raise InvalidRequest(f"The hint {path} cannot be read as text ({error}).") from error
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
        return text_of_captions(content, suffix)
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
        raise InvalidRequest(f"The hint {path} is no transcript in JSON: it has no text.")
    return text
