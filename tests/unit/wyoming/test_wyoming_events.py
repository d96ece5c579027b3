"""Events are read within limits: bytes of any kind are an event, an end, or our own error."""

import asyncio
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wyoming.audio import AudioChunk
from wyoming.event import Event, write_event

from specwhisper.errors import InvalidRequest, MessageTooLarge, SpecWhisperError
from specwhisper_wyoming.connection import MAX_DATA_BYTES, MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES, read_event

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def sent(event: Event) -> bytes:
    """Return an event as the package sends it."""
    buffer = io.BytesIO()
    write_event(event, buffer)
    return buffer.getvalue()


async def read(data: bytes) -> Event | None:
    reader = asyncio.StreamReader(limit=MAX_HEADER_BYTES)
    reader.feed_data(data)
    reader.feed_eof()
    return await read_event(reader)


@given(st.text(min_size=1), st.dictionaries(st.text(), JSON), st.binary())
async def test_what_the_package_writes_is_read(kind, data, payload):
    assert await read(sent(Event(kind, data, payload))) == Event(kind, data, payload or None)


@pytest.mark.parametrize("end", [0, 1, 20, -1])
async def test_the_end_of_a_connection_is_no_error_also_within_an_event(end):
    assert await read(sent(AudioChunk(16_000, 2, 1, bytes(64)).event())[:end]) is None


async def test_data_of_the_line_and_after_it_are_joined():
    more = json.dumps({"b": 3}).encode()
    line = json.dumps({"type": "x", "data": {"a": 1, "b": 2}, "data_length": len(more)}).encode()
    assert await read(line + b"\n" + more) == Event("x", {"a": 1, "b": 3})


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1",
        b"[" * 10_000,
        b'{"type": "x", "data": []}',
        b'{"type": "x", "data_length": -1}',
        b'{"type": "x", "payload_length": true}',
        b'{"type": "x", "data_length": 2}\n[]',
        b'{"type": "ping", "data": {"text": "\\ud800"}}',
    ],
)
async def test_other_bytes_are_refused(line):
    with pytest.raises(InvalidRequest):
        await read(line + b"\n")


@pytest.mark.parametrize(
    "data",
    [
        b"x" * (MAX_HEADER_BYTES + 1),
        b'{"type": "x", "data_length": %d}\n' % (MAX_DATA_BYTES + 1),
        b'{"type": "x", "payload_length": %d}\n' % (MAX_PAYLOAD_BYTES + 1),
    ],
)
async def test_too_large_events_are_refused_before_they_are_read(data):
    with pytest.raises(MessageTooLarge):
        await read(data)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode() + b"\n"))
async def test_bytes_of_any_kind_are_an_event_an_end_or_an_error_of_ours(data):
    try:
        event = await read(data)
    except SpecWhisperError:
        return
    assert event is None or isinstance(event.type, str)
