"""``/``: the page for live transcription."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from fastapi import APIRouter, HTTPException, Response
from pydantic import BaseModel

from specwhisper_gateway.page_files import page_files, sample_as_wav, samples

router = APIRouter(include_in_schema=False)

# Nothing from other machines, nothing inline: speech goes to this gateway only.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class Sample(BaseModel):
    name: str
    title: str
    seconds: float


@router.get("/")
async def index() -> Response:
    return _file("index.html")


@router.get("/page/{name}")
async def file(name: str) -> Response:
    return _file(name)


@router.get("/samples")
async def list_samples() -> list[Sample]:
    return [
        Sample(name=name, title=sample["title"], seconds=sample["seconds"])
        for name, sample in samples().items()
    ]


@router.get("/samples/{name}.wav")
async def sample(name: str) -> Response:
    if name not in samples():
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return Response(await asyncio.to_thread(sample_as_wav, name), media_type="audio/wav", headers=HEADERS)


def _file(name: str) -> Response:
    found = page_files().get(name)
    if found is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return Response(found.content, media_type=found.media_type, headers=HEADERS)
