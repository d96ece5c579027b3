"""``/``: the page for live transcription, its files and its sample recordings."""

from __future__ import annotations

import asyncio
import io
import json
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Any

import soundfile
from fastapi import APIRouter, HTTPException, Response

PAGE = Path(str(files("specwhisper_gateway"))) / "page"
SAMPLES = Path(str(files("specwhisper"))) / "demo" / "samples"
MEDIA_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
# In order of dependency: the replay is one file without imports.
REPLAY_MODULES = (
    *("words", "state", "transcript", "charts", "waveform"),
    *("link", "view", "player", "playback", "replay"),
)


@cache
def page_files() -> dict[str, bytes]:
    """Return the content of the page's files by name."""
    found = {path.name: path.read_bytes() for path in PAGE.iterdir() if path.suffix in MEDIA_TYPES}
    return found | {"replay.html": replay_template().encode()}


def replay_template() -> str:
    """Return the replay page with its modules and style inline; the page adds a recording."""
    script = "\n".join(_without_imports((PAGE / f"{name}.js").read_text()) for name in REPLAY_MODULES)
    page = (PAGE / "replay.html").read_text()
    return page.replace("/*STYLE*/", (PAGE / "style.css").read_text()).replace("/*SCRIPT*/", script)


def _without_imports(module: str) -> str:
    lines = (line for line in module.splitlines() if not line.startswith("import "))
    return "\n".join(line.removeprefix("export ") for line in lines)


@cache
def samples() -> dict[str, dict[str, Any]]:
    """Return the bundled recordings by name."""
    lines = (SAMPLES / "metadata.jsonl").read_text().splitlines()
    return {Path(sample["file_name"]).stem: sample for sample in map(json.loads, lines)}


@cache
def sample_as_wav(name: str) -> bytes:
    file = io.BytesIO()
    audio, rate = soundfile.read(SAMPLES / samples()[name]["file_name"], dtype="int16")
    soundfile.write(file, audio, rate, format="WAV")
    return file.getvalue()


router = APIRouter(include_in_schema=False)

HEADERS = {
    # Nothing from other machines, nothing inline: speech goes to this gateway only.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; worker-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


@router.get("/")
async def index() -> Response:
    return _file("index.html")


@router.get("/page/{name}")
async def file(name: str) -> Response:
    return _file(name)


@router.get("/samples")
async def list_samples() -> list[dict[str, Any]]:
    return [
        {"name": name, "title": sample["title"], "seconds": sample["seconds"]}
        for name, sample in samples().items()
    ]


@router.get("/samples/{name}.wav")
async def sample(name: str) -> Response:
    if name not in samples():
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return Response(await asyncio.to_thread(sample_as_wav, name), media_type="audio/wav", headers=HEADERS)


def _file(name: str) -> Response:
    if name not in page_files():
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return Response(page_files()[name], media_type=MEDIA_TYPES[Path(name).suffix], headers=HEADERS)
