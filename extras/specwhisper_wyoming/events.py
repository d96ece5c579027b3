"""Read a client's events within limits."""

from __future__ import annotations

import json
from asyncio import IncompleteReadError, LimitOverrunError, StreamReader
from typing import Any

from wyoming.event import Event

from specwhisper.errors import InvalidRequest, MessageTooLarge

MAX_HEADER_BYTES = 64 * 1024
MAX_DATA_BYTES = 256 * 1024
MAX_PAYLOAD_BYTES = 4 * 1024 * 1024  # two minutes at 16 kHz; clients send a fraction of a second


async def read_event(reader: StreamReader) -> Event | None:
    """Read an event, or ``None`` at the end of the connection, which may be within an event.

    The package's own reader has no limits, and fails on JSON that is not an object.

    Parameters
    ----------
    reader : its limit is :data:`MAX_HEADER_BYTES`.
    """
    try:
        header = _parsed(await reader.readuntil(b"\n"))
        kind, data = header.get("type"), header.get("data")
        if not isinstance(kind, str):
            raise InvalidRequest("An event has no 'type'.")
        if not isinstance(data, dict | None):
            raise InvalidRequest("The 'data' of an event is not a JSON object.")
        more = await reader.readexactly(_length(header, "data_length", MAX_DATA_BYTES))
        payload = await reader.readexactly(_length(header, "payload_length", MAX_PAYLOAD_BYTES))
    except LimitOverrunError as error:
        raise MessageTooLarge(
            f"An event begins with a line of JSON of at most {MAX_HEADER_BYTES} bytes; this one is longer."
        ) from error
    except (IncompleteReadError, ConnectionError):
        return None
    return Event(kind, (data or {}) | (_parsed(more) if more else {}), payload or None)


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            "An event of the Wyoming protocol is a line of JSON; this one is not."
        ) from error
    if not isinstance(parsed, dict):
        raise InvalidRequest("An event is a JSON object; this one is not.")
    try:
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, which no answer could quote
        raise InvalidRequest("An event has characters that are not Unicode.") from error
    return parsed


def _length(header: dict[str, Any], name: str, limit: int) -> int:
    length = header.get(name)
    if length is None:
        return 0
    if not isinstance(length, int) or isinstance(length, bool) or length < 0:
        raise InvalidRequest(f"The '{name}' of an event is not a number of bytes.")
    if length > limit:
        raise MessageTooLarge(f"The '{name}' of an event is {length}; the limit is {limit} bytes.")
    return length
