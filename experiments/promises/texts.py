"""Hostile texts: hint files are read in linear time, and no control character is written."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from experiments.common.bench.report import Bar
from specwhisper.errors import InvalidRequest
from specwhisper.printable import CONTROL, DIRECTION
from specwhisper.transcription.formats import to_srt, to_tsv, to_txt, to_vtt
from specwhisper.transcription.hints.file import read_hint
from specwhisper.transcription.transcription import Transcription
from specwhisper.types import Segment, Word

MAX_READ_S = 2.0
BYTES = 200_000
PARTS = ("<", "<a", " ", "{", "{\\i1}", "[", "0:00:00", "0:00 ", "-->", "\n\nNOTE", "&#")
SUFFIXES = (".srt", ".vtt", ".ass", ".ttml", ".txt", ".tsv", ".json")
HEADERS = {".vtt": "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\n", ".srt": "00:00:01,000 --> 00:00:02,000\n<"}
BAD = "\x1b[31mred\x00 \u202egnikcart\u202c\x9b2J\x07"


@dataclass(frozen=True, slots=True)
class Hostile:
    """Outcome of hostile texts.

    Attributes
    ----------
    slowest_s : processor time to read the slowest hint file.
    wrong : files that ended in another error than :class:`InvalidRequest`, and formats that kept control
        characters.
    """

    slowest: str
    slowest_s: float
    wrong: tuple[str, ...]


def measure_texts(folder: Path) -> Hostile:
    """Read hostile hint files, and write hostile transcripts."""
    took_s, wrong = dict[str, float](), list[str]()
    files = {f"{part!r} in {suffix}": (suffix, part) for suffix in SUFFIXES for part in PARTS}
    nested = "<span>" * 100_000 + "<p>deep</p>" + "</span>" * 100_000
    for name, (suffix, part) in files.items() | {"nested TTML": (".ttml", nested)}.items():
        path = folder / f"hint{suffix}"
        path.write_text(HEADERS.get(suffix, "") + part * max(1, BYTES // len(part)), "utf-8")
        took_s[name] = _read_s(path, wrong)
    took_s["/dev/zero"] = _read_s(Path("/dev/zero"), wrong)
    words = (Word(0.0, 1.0, f" {BAD}", 0.5, speaker=BAD),)
    segments = (Segment(0.0, 1.0, (1,), BAD, words=words, speaker=BAD),)
    result = Transcription(segments, duration_s=1.0)
    texts = [to_txt(segments), to_srt(segments), to_vtt(segments), to_tsv(segments)]
    texts += [result.to_json("a.wav"), result.to_verbose_json(), result.to_diarized_json()]
    for text in texts:
        lines = text.replace("\t", "\n").split("\n")
        wrong += [line for line in lines if CONTROL.search(line) or DIRECTION.search(line)]
    slowest = max(took_s, key=lambda name: took_s[name])
    return Hostile(slowest, took_s[slowest], tuple(wrong))


def bars(hostile: Hostile) -> list[Bar]:
    """Return the bars."""
    num_wrong = len(hostile.wrong)
    return [
        Bar(
            f"a hint file of {BYTES / 1000:g} kB that is made to be slow, s",
            hostile.slowest_s,
            MAX_READ_S,
            f"{hostile.slowest_s:.2f} at most, {hostile.slowest}",
        ),
        Bar("control characters written, hint files that end in a traceback", num_wrong, 1, f"{num_wrong}"),
    ]


def _read_s(path: Path, wrong: list[str]) -> float:
    began_s = process_time()
    try:
        with suppress(InvalidRequest):
            read_hint(path)
    except Exception as error:
        wrong.append(f"{path.name}: {type(error).__name__}")
    return process_time() - began_s
