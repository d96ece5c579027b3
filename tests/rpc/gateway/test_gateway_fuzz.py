"""Hostile requests, forms and messages are refused, and the gateway keeps serving."""

import json
import logging
import socket as sockets
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
import websockets
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from websockets.sync.client import ClientConnection, connect

from experiments.common.models.scripted import NUM_TEXT, ScriptedModel
from specwhisper_gateway.errors import FAILED
from tests.fuzz.running import EFFORT, Running
from tests.rpc import gateway_hostile as hostile
from tests.rpc.gateway.test_gateway_access import routes_of
from tests.rpc.gateways import MODEL, RunningGateway, running_gateway
from tests.rpc.services import MAX_SESSIONS, all_free, draft_server, eventually, target_server

FILE = b'; filename="a"'
ROUTES = ("/v1/audio/transcriptions", "/v1/audio/translations")
PROBE = "the-last-event"
REPLY_S = 30.0
REFUSALS = (400, 403, 404, 405, 413)
# An error in uvicorn's log that a client has caused.
NOT_OURS = "Invalid UTF-8 sequence received from client."
# Starlette closes a truncated form's file only with its last reference.
pytestmark = pytest.mark.filterwarnings("ignore:Unclosed file <.*SpooledTemporaryFile:ResourceWarning")


def examples(number: int) -> settings:
    return settings(max_examples=round(number * EFFORT), suppress_health_check=[HealthCheck.too_slow])


class AnyText(ScriptedModel):
    """A model that has a token for any prompt."""

    def tokenize(self, text: str, *, after_space: bool = True) -> tuple[int, ...]:
        return tuple(ord(letter) % NUM_TEXT for letter in text)


class Fuzzed(Running):
    """A gateway for a scripted pair."""

    gateway: RunningGateway

    async def serve(self, ready: threading.Event) -> None:
        async with (
            target_server(AnyText(MAX_SESSIONS)) as self.target,
            draft_server(self.target.address) as self.draft,
            running_gateway(
                self.draft.address, max_upload_bytes=200_000, max_sessions=MAX_SESSIONS
            ) as self.gateway,
        ):
            ready.set()
            await self._stop.wait()

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.gateway.server.address.rpartition(":")
        return host, int(port)

    def ask(
        self, method: str, path: str, headers: Sequence[tuple[str, str]] = (), body: bytes = b""
    ) -> tuple[int, str, bytes]:
        """Send a raw request; return status, media type and body of the answer."""
        lines = [("Host", "here"), ("Content-Length", str(len(body))), *headers]
        head = "".join(f"{name}: {value}\r\n" for name, value in lines)
        with sockets.create_connection(self.address, timeout=REPLY_S) as connection:
            # In one write: bytes after a refusal reset the connection, and the reset may overtake it.
            connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
            with HTTPResponse(connection, method=method) as reply:
                reply.begin()
                return reply.status, reply.getheader("content-type", ""), reply.read()

    async def at_rest(self) -> None:
        """Check that no session is left."""
        state = self.gateway.server.server_state
        await eventually(lambda: not state.tasks and len(state.connections) <= 1)  # the one below
        assert self.gateway.num_sessions == 0
        figures = await self.gateway.figures()
        assert (figures["active_requests"], figures["active_sessions"]) == (1, 0)
        await all_free(self.target, self.draft)


@pytest.fixture(scope="module")
def uploads(tmp_path_factory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("uploads")
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


@pytest.fixture(scope="module")
def server(uploads) -> Iterator[Fuzzed]:
    with Fuzzed().in_thread() as running:
        yield running


def our_errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the errors that the test has logged, without those of clients."""
    return [
        record.exc_text or record.getMessage()
        for record in caplog.get_records("call")
        if record.levelno >= logging.ERROR
        and record.getMessage() != NOT_OURS
        and record.name != "websockets.client"
    ]


@pytest.fixture(autouse=True)
def checked(server, uploads, caplog) -> Iterator[None]:
    """Check that the gateway answers, has no session, and logged none of our own errors."""
    yield
    assert server.ask("GET", "/health")[0] == 200
    server.run(server.at_rest())
    assert our_errors(caplog) == []
    assert list(uploads.iterdir()) == []


def check_reply(status: int, media_type: str, body: bytes) -> None:
    """Check that an answer isn't a server error, and refuses in OpenAI's format."""
    assert status < 500, body
    assert b"Traceback" not in body
    if status >= 400:
        assert status in REFUSALS, (status, body)
        if media_type == "application/json" and body:  # HEAD has none
            error = json.loads(body)["error"]
            assert error.keys() == {"message", "type", "param", "code"}
            assert error["message"]
        else:
            assert body in (b"", b"Invalid HTTP request received.")  # uvicorn's own, to what is not HTTP


@examples(150)
@given(method=hostile.methods, headers=hostile.headers, body=st.binary(max_size=300), data=st.data())
def test_any_request_to_any_route(server, method, headers, body, data):
    paths = [route.path for route in routes_of(server.gateway.server.app)]
    check_reply(*server.ask(method, data.draw(hostile.targets(paths)), headers, body))


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


def send_all(socket: ClientConnection, *frames: str | bytes) -> None:
    with suppress(websockets.ConnectionClosed):  # reported to the reader
        for frame in frames:
            socket.send(frame)


@examples(120)
@given(frames=st.lists(hostile.frames(hostile.EVENTS), max_size=6))
@example(frames=[json.dumps({"type": "no.such.event", "event_id": hostile.HALF_CHARACTER})])
def test_realtime_events(server, frames):
    with connect(f"ws://{server.gateway.server.address}/v1/realtime?intent=transcription") as socket:
        send_all(socket, *frames, json.dumps({"type": "no.such.event", "event_id": PROBE}))
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
        send_all(socket, first, *frames, json.dumps({"type": "finish"}))
        while frame_of(socket) is not None:
            pass
