"""Uploads of recordings, limited while they are read."""

from __future__ import annotations

import asyncio
import errno
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from time import monotonic

from fastapi import Request
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import Message, Receive

from specwhisper.errors import InvalidAudio, InvalidRequest, MessageTooLarge
from specwhisper.options import MAX_HINT_BYTES
from specwhisper_gateway.errors import IdleTimeout, InvalidField, InvalidUpload, StorageFull
from specwhisper_gateway.state import gateway_of, within_time

FILE, FORM = "file", "multipart/form-data"
MAX_FIELDS = 200  # keywords[] is a list
MAX_FIELD_BYTES = 64 * 1024  # a prompt has some hundred bytes
# Samples of speakers are in base64: 10 s of stereo at 48 kHz have 2.6 MB. Fields are held in memory.
MAX_SAMPLE_BYTES = 3 * 1024 * 1024
MAX_BYTES_OF = {"hint": MAX_HINT_BYTES, "known_speaker_references": MAX_SAMPLE_BYTES}
IDLE_TIMEOUT_S = 30.0  # for a client that stops in the middle: it counts as a session
MIN_BYTES_PER_S = 4_000  # less than any network that audio is sent over; slower clients count as idle
SEND_LESS = "send the recording compressed or in parts, or ask the operator for a larger --max-upload-bytes."
TEMPORARY_PREFIX = "specwhisper-upload-"
SUFFIX = re.compile(r"\.[a-zA-Z0-9]{1,8}\Z")


@dataclass(frozen=True, slots=True)
class Upload:
    """The contents of a form.

    Attributes
    ----------
    path : the recording, which exists until the request ends.
    fields : names and values of all other parts, in order.
    """

    path: Path
    fields: list[tuple[str, str]]

    def without_path(self, sentence: str) -> str:
        """Return a sentence about the recording without its path on this machine."""
        return sentence.replace(f"Audio file '{self.path}'", "The file")


async def receive_upload(request: Request) -> AsyncIterator[Upload]:
    """Read a form into a temporary file, which exists until the response was sent.

    Raises :class:`MessageTooLarge` once it exceeds the limit.
    """
    max_bytes = gateway_of(request).config.max_upload_bytes
    receive = limited(request.receive, max_bytes, SEND_LESS)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(int(declared), max_bytes, SEND_LESS)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise _missing_file()  # other forms have no files, and are slow to parse
    with _full_disk_as_error():
        async with within_time(request):
            parts = await _form(Request(request.scope, receive))
        try:
            fields = [(name, value) for name, value in parts.multi_items() if isinstance(value, str)]
            for name, value in fields:
                most = MAX_BYTES_OF.get(name.removesuffix("[]"), MAX_FIELD_BYTES)
                if len(value.encode()) > most:
                    raise InvalidField(f"{name[:100]} has more than {most} bytes.", name[:100])
            recording = parts.get(FILE)
            if not isinstance(recording, UploadFile):
                raise _missing_file()
            if not recording.size:
                raise InvalidUpload("The file is empty: it has 0 bytes.")
            # A named file, because a long recording is decoded twice.
            # FFmpeg knows some formats by their suffix alone.
            suffix = SUFFIX.search(recording.filename or "")
            with NamedTemporaryFile(prefix=TEMPORARY_PREFIX, suffix=suffix[0] if suffix else None) as file:
                await asyncio.to_thread(shutil.copyfileobj, recording.file, file)
                file.flush()
                yield Upload(Path(file.name), fields)
        finally:
            await parts.close()


@contextmanager
def errors_about(upload: Upload) -> Iterator[None]:
    try:
        yield
    except InvalidAudio as error:
        raise InvalidUpload(upload.without_path(str(error))) from error


@contextmanager
def _full_disk_as_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StorageFull(
            "The gateway has no room on its disk for the recording: try again later, or ask the operator to "
            "free space in its temporary folder."
        ) from error


async def _form(request: Request) -> FormData:
    try:
        return await MultiPartParser(
            request.headers,
            request.stream(),
            max_files=1,
            max_fields=MAX_FIELDS,
            max_part_size=MAX_SAMPLE_BYTES,
        ).parse()
    except MultiPartException as error:
        raise InvalidRequest(f"The form cannot be read: {error.message}") from error


def limited(receive: Receive, max_bytes: int, remedy: str) -> Receive:
    """Limit the received bytes, whatever the headers declare, and the time of waiting for them.

    A client that sends nothing uses up its time, which bytes renew.
    """
    num_bytes, left_s = 0, IDLE_TIMEOUT_S

    async def receive_counted() -> Message:
        nonlocal num_bytes, left_s
        began_s = monotonic()
        try:
            async with asyncio.timeout(left_s):
                message = await receive()
        except TimeoutError as error:
            raise IdleTimeout(
                f"Less than {MIN_BYTES_PER_S} bytes a second of the request came for {IDLE_TIMEOUT_S:g} s: "
                "send it again, over a faster network or compressed."
            ) from error
        new_bytes = len(message.get("body", b""))
        left_s = min(IDLE_TIMEOUT_S, left_s - (monotonic() - began_s) + new_bytes / MIN_BYTES_PER_S)
        num_bytes += new_bytes
        if num_bytes > max_bytes:
            raise _too_large(num_bytes, max_bytes, remedy)
        return message

    return receive_counted


def _missing_file() -> InvalidField:
    return InvalidField(
        f"file is missing: send the recording as the part 'file' of a {FORM} request.",
        FILE,
        "missing_required_parameter",
    )


def _too_large(num_bytes: int, max_bytes: int, remedy: str) -> MessageTooLarge:
    return MessageTooLarge(
        f"The request has {num_bytes} bytes or more and this gateway takes {max_bytes}: {remedy}"
    )
