"""Read a hint from a file: captions or plain text."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pysubs2

from specwhisper.errors import InvalidRequest
from specwhisper.options import MAX_HINT_BYTES

CAPTIONS = (".srt", ".vtt", ".ass", ".ssa", ".ttml")
MAX_FILE_BYTES = 20 * MAX_HINT_BYTES  # times and styles of captions are many times their text
# Its parser takes the comments of WebVTT for lines of the caption before.
COMMENT = re.compile(r"(?<=\n\n)NOTE(?:[ \t].*)?(?:\n(?:.+(?:\n|\Z))*|\Z)")


def read_hint(path: Path | str) -> str:
    """Return the text of a file of captions, or of plain text in UTF-8.

    Captions are SRT, WebVTT, ASS or TTML, by the name of the file.

    Raises
    ------
    InvalidRequest : for a file that cannot be read, has no text, or is of another format than its name.
    """
    path = Path(path)
    text = _text_of(path).strip()
    if not text:
        raise InvalidRequest(f"The hint {path} has no text.")
    return text


def find_hint(folder: Path, recording: Path) -> str:
    """Return the hint in a folder that is named like a recording; empty without one."""
    paths = (folder / f"{recording.stem}{suffix}" for suffix in (*CAPTIONS, ".txt"))
    return next((read_hint(path) for path in paths if path.is_file()), "")


def _text_of(path: Path) -> str:
    try:
        if (num_bytes := path.stat().st_size) > MAX_FILE_BYTES:
            raise InvalidRequest(
                f"The hint {path} has {num_bytes} bytes: a hint is at most {MAX_HINT_BYTES} of text."
            )
        content = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The hint {path} cannot be read as text ({error}).") from error
    if path.suffix.lower() not in CAPTIONS:
        if "-->" in content:
            raise InvalidRequest(f"The hint {path} holds captions: name it .srt or .vtt.")
        return content
    if path.suffix.lower() == ".vtt":
        content = COMMENT.sub("", content)
    try:
        captions = pysubs2.SSAFile.from_string(content, format_=path.suffix.lower().lstrip("."))
    except Exception as error:  # whatever a parser makes of a broken file
        raise InvalidRequest(f"The hint {path} does not hold captions ({error}).") from error
    if content.strip() and not captions:
        raise InvalidRequest(f"The hint {path} holds no captions: call a file of plain text .txt.")
    return html.unescape("\n".join(caption.plaintext for caption in captions if not caption.is_comment))
