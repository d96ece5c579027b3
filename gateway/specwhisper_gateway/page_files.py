"""The page's files and its sample recordings."""

from __future__ import annotations

import io
import json
import wave
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from specwhisper.audio.decode import decode_file
from specwhisper.types import SAMPLE_RATE

PAGE = Path(str(files("specwhisper_gateway"))) / "page"
SAMPLES = Path(str(files("specwhisper"))) / "demo" / "samples"
MEDIA_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
RECORDING_MARK = "/*RECORDING*/"
# In order of dependency: the replay is one file without imports.
REPLAY_MODULES = (
    "words.js",
    "state.js",
    "transcript.js",
    "charts.js",
    "waveform.js",
    "link.js",
    "view.js",
    "player.js",
    "playback.js",
    "replay.js",
)


@dataclass(frozen=True, slots=True)
class PageFile:
    content: bytes
    media_type: str


@cache
def page_files() -> dict[str, PageFile]:
    """Read all files of the page, and build the replay page from some of them."""
    found = {
        path.name: PageFile(path.read_bytes(), MEDIA_TYPES[path.suffix])
        for path in sorted(PAGE.iterdir())
        if path.suffix in MEDIA_TYPES
    }
    return found | {"replay.html": PageFile(replay_template().encode(), "text/html")}


def replay_page(recording: dict[str, Any]) -> str:
    written = json.dumps(recording, separators=(",", ":"))
    # The transcript must not contain an end tag, which would end the script.
    return replay_template().replace(RECORDING_MARK, written.replace("<", "\\u003c"))


@cache
def replay_template() -> str:
    """Return the replay page with its modules and style inline."""
    script = "\n".join(_without_imports((PAGE / name).read_text()) for name in REPLAY_MODULES)
    page = (PAGE / "replay.html").read_text()
    return page.replace("/*STYLE*/", (PAGE / "style.css").read_text()).replace("/*SCRIPT*/", script)


def _without_imports(module: str) -> str:
    lines = (line for line in module.splitlines() if not line.startswith("import "))
    return "\n".join(line.removeprefix("export ") for line in lines)


@cache
def samples() -> dict[str, dict[str, Any]]:
    """Return the bundled recordings by name; an installation may have none."""
    try:
        lines = (SAMPLES / "metadata.jsonl").read_text().splitlines()
    except OSError:
        return {}
    found = (json.loads(line) for line in lines)
    return {Path(sample["file_name"]).stem: sample for sample in found}


@cache
def sample_as_wav(name: str) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(SAMPLE_RATE)
        for pcm in decode_file(SAMPLES / samples()[name]["file_name"]):
            out.writeframes(pcm)
    return file.getvalue()
