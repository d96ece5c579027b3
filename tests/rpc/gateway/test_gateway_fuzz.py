"""Hostile requests and events are refused, and the gateway keeps serving.

``SPECWHISPER_FUZZ=20`` runs twenty times as many examples.
"""

import json
import socket as sockets
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import websockets
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.sync.client import ClientConnection, connect

from specwhisper_gateway.errors import FAILED
from tests.rpc import gateway_hostile as hostile
from tests.rpc.gateway.test_gateway_access import SOCKETS, routes_of
from tests.rpc.gateway_fuzzing import REPLY_S, Fuzzed, check_reply, examples, fuzzed
from tests.rpc.gateways import MODEL, handshake

FILE = b'; filename="a"'
ROUTES = ("/v1/audio/transcriptions", "/v1/audio/translations")
PROBE = "the-last-event"
# Starlette closes a truncated form's file only with its last reference.
pytestmark = pytest.mark.filterwarnings("ignore:Unclosed file <.*SpooledTemporaryFile:ResourceWarning")


def end_of(connection: sockets.socket) -> bytes:
    received = b""
    try:
        while piece := connection.recv(65_536):
            received += piece
    except ConnectionResetError:
        pass
    assert b"Traceback" not in received
    return received


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Fuzzed]:
    folder, before = tmp_path_factory.mktemp("uploads"), tempfile.tempdir
    tempfile.tempdir = str(folder)
    try:
        with fuzzed(folder) as running:
            yield running
    finally:
        tempfile.tempdir = before


@pytest.fixture(autouse=True)
def checked(server) -> Iterator[None]:
    yield
    server.check_alive()


@examples(150)
@given(method=hostile.methods, headers=hostile.headers, body=st.binary(max_size=300), data=st.data())
def test_any_request_to_any_route(server, method, headers, body, data):
    paths = [route.path for route in routes_of(server.gateway.server.app)]
    check_reply(*server.ask(method, data.draw(hostile.targets(paths)), headers, body))


@examples(60)
@given(
    first=st.sampled_from(
        [b"", b"GET / HTTP/1.1\r\n", b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: a\r\n"]
    ),
    lines=hostile.head_lines,
    rest=st.binary(max_size=80) | st.just(b"ffffffffffffffff\r\n"),
)
def test_almost_valid_http(server, first, lines, rest):
    with sockets.create_connection(server.address, timeout=REPLY_S) as connection:
        with suppress(OSError):  # the gateway may have refused it and closed
            connection.sendall(first + b"".join(lines) + b"\r\n" + rest)
            connection.shutdown(sockets.SHUT_WR)
        received = end_of(connection)
    assert not received or received.startswith(b"HTTP/1.1 ")
    assert not received.startswith(b"HTTP/1.1 5")


@examples(120)
@given(
    path=st.sampled_from(ROUTES),
    recording=hostile.recordings(),
    more=st.lists(hostile.parts(), max_size=4),
    end=hostile.mostly(st.just(b"--x--\r\n"), st.sampled_from([b"", b"--x", b"--x--"])),
    boundary=hostile.mostly(st.just("x"), st.sampled_from(["", "y", '"x"; charset=utf-16'])),
)
def test_forms(server, path, recording, more, end, boundary):
    body = [hostile.part(b"file", recording, FILE), hostile.part(b"model", MODEL.encode()), *more, end]
    content_type = ("Content-Type", f"multipart/form-data; boundary={boundary}")
    check_reply(*server.ask("POST", path, [content_type], b"".join(body)))


def frame_of(socket: ClientConnection) -> dict[str, Any] | None:
    """Return the next message; ``None`` at the end, which is never an internal error."""
    try:
        reply: dict[str, Any] = json.loads(socket.recv(REPLY_S))
    except websockets.ConnectionClosed as closed:
        assert closed.rcvd is not None
        assert closed.rcvd.code != FAILED, closed
        return None
    assert "Traceback" not in str(reply)
    return reply


@examples(120)
@given(frames=st.lists(hostile.frames(hostile.EVENTS), max_size=6))
@example(frames=[json.dumps({"type": "no.such.event", "event_id": hostile.HALF_CHARACTER})])
def test_realtime_events(server, frames):
    with connect(f"ws://{server.gateway.server.address}/v1/realtime?intent=transcription") as socket:
        try:
            for frame in frames:
                socket.send(frame)
            socket.send(json.dumps({"type": "no.such.event", "event_id": PROBE}))
        except websockets.ConnectionClosed:
            pass  # reported below
        while (event := frame_of(socket)) is not None:
            if event["type"] == "error" and event["error"]["event_id"] == PROBE:
                break


@examples(80)
@given(
    first=hostile.frames([hostile.START]),
    frames=st.lists(hostile.frames(hostile.CHANGES) | st.binary(max_size=4_000), max_size=5),
)
def test_the_pages_messages(server, first, frames):
    with connect(f"ws://{server.gateway.server.address}/live") as socket:
        try:
            for frame in (first, *frames):
                socket.send(frame)
            socket.send(json.dumps({"type": "finish"}))
        except websockets.ConnectionClosed:
            pass  # reported below
        while frame_of(socket) is not None:
            pass


@examples(40)
@given(
    path=st.sampled_from(SOCKETS),
    opcode=st.integers(0, 15),
    is_last=st.booleans(),
    length=st.integers(0, 200) | st.just(2**62),
    payload=st.binary(max_size=60),
)
def test_invalid_frames(server, path, opcode, is_last, length, payload):
    size = bytes([0x80 | length]) if length < 126 else bytes([0x80 | 127]) + length.to_bytes(8, "big")
    with sockets.create_connection(server.address, timeout=REPLY_S) as connection:
        connection.sendall(handshake(path).encode() + b"\r\n")
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(65_536)
        assert received.startswith(b"HTTP/1.1 101 ")
        connection.sendall(bytes([0x80 * is_last | opcode]) + size + bytes(4) + payload)
        connection.shutdown(sockets.SHUT_WR)
        end_of(connection)


async def broken() -> None:
    raise KeyError("an unexpected error")


def test_the_fuzzer_notices_a_failure(server):
    server.gateway.server.app.add_api_route("/broken", broken)
    status, media_type, body = server.ask("GET", "/broken")
    assert (status, "an unexpected error" in body.decode()) == (500, False)
    with pytest.raises(AssertionError):
        check_reply(status, media_type, body)
    with pytest.raises(AssertionError):
        server.check_alive()
    (logged,) = server.errors.messages
    assert "KeyError: 'an unexpected error'" in logged
    server.errors.messages.clear()
