"""A gateway's limits: connections, heads, unread answers, transcriptions."""

import asyncio
import json
import socket
from contextlib import AsyncExitStack

import openai
import pytest
import websockets
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from specwhisper.options import MAX_HINT_BYTES
from specwhisper.rpc import http_server
from specwhisper.rpc.tokens import Tokens
from specwhisper_gateway.audio import uploads
from specwhisper_gateway.audio.uploads import MAX_FIELD_BYTES, MAX_SAMPLE_BYTES
from tests.rpc.client_scripts import RESPONSES, ScriptedTranscription
from tests.rpc.gateways import MODEL, RECORDING, connected, ends, gateway_for, handshake, socket_refusal
from tests.rpc.live_scripts import TWO_UTTERANCES
from tests.rpc.services import eventually

ANNA, BEN = "0123456789abcdef-anna", "0123456789abcdef-ben"
TOKENS = Tokens({ANNA: "anna", BEN: "ben"})
BIG = "/static-offline-docs/swagger-ui-bundle.js"  # more than the system buffers


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: he"])
async def test_an_incomplete_head_is_cut_off(gateway, sent, monkeypatch):
    monkeypatch.setattr(http_server, "HEAD_S", 0.05)
    async with connected(gateway) as (reader, writer):
        writer.write(sent)
        assert await ends(reader) == b""
        await eventually(lambda: not gateway.server.connections)


async def test_each_head_has_a_deadline(gateway, monkeypatch):
    async with connected(gateway) as (reader, writer):
        for _ in range(2):
            writer.write(b"GET /samples HTTP/1.1\r\nHost: here\r\n\r\n")
            assert b"200 OK" in await reader.readuntil(b"}]")
            monkeypatch.setattr(http_server, "HEAD_S", 0.05)
            monkeypatch.setattr(http_server, "KEEP_ALIVE_S", 0.0)
        writer.write(b"GET /samples HTT")
        assert await ends(reader) == b""


async def test_open_requests_and_websockets_have_no_head_deadline():
    server = ScriptedTranscription(TWO_UTTERANCES, reads_everything=False)
    async with gateway_for(server) as gateway, connected(gateway) as (reader, writer):
        writer.write((handshake("/live") + "\r\n").encode())
        assert b"101 Switching" in await reader.readuntil(b"\r\n\r\n")
        form = b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\n' + b"0" * 1_000
        async with connected(gateway) as (other, upload):
            upload.write(b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: here\r\nContent-Length: 99999\r\n")
            upload.write(b"Content-Type: multipart/form-data; boundary=x\r\n\r\n" + form)
            await eventually(lambda: len(gateway.server.server_state.tasks) == 2)
            assert [connection._deadline for connection in gateway.server.connections] == [None, None]
            upload.write_eof()
            assert await ends(other) == b""


@pytest.mark.parametrize("rest", ["no header\r\n\r\n", "Content-Length: -1\r\n\r\n", f"X: {'x' * 20_000}"])
async def test_what_is_not_http_and_a_large_head_are_refused(gateway, rest):
    async with connected(gateway) as (reader, writer):
        writer.write(f"GET / HTTP/1.1\r\nHost: here\r\n{rest}".encode())
        assert (await ends(reader)).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("idle_s", "session_s", "code"), [(0.05, 86_400.0, "session_idle"), (30.0, 0.05, "session_expired")]
)
async def test_an_endless_upload_ends_its_session(idle_s, session_s, code, monkeypatch):
    monkeypatch.setattr(uploads, "IDLE_TIMEOUT_S", idle_s)
    async with gateway_for(session_timeout_s=session_s) as gateway, connected(gateway) as (reader, writer):
        writer.write(b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: here\r\nContent-Length: 99\r\n")
        writer.write(b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n")
        answer = await reader.readuntil(b"}}")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == code
        await eventually(lambda: gateway.num_sessions == 0)


@pytest.mark.parametrize("path", [BIG, "/live"])
async def test_a_client_that_reads_nothing_is_cut_off(path, monkeypatch):
    monkeypatch.setattr(http_server, "UNREAD_S", 0.05)
    server = ScriptedTranscription(TWO_UTTERANCES * 1_000, reads_everything=False)
    async with gateway_for(server) as gateway:
        # The system buffers little for both ends.
        gateway.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        async with connected(gateway) as (reader, writer):
            if path == "/live":
                writer.write((handshake("/live") + "\r\n").encode())
                await reader.readuntil(b"\r\n\r\n")
                start = json.dumps({"type": "start", "sample_rate": 16_000}).encode()
                writer.write(bytes([0x81, 0x80 | len(start), 0, 0, 0, 0]) + start)
                writer.write(bytes([0x82, 0x80 | 2, 0, 0, 0, 0, 0, 0]))  # a sample
                await server.has_read_everything.wait()
            else:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
            writer.transport.pause_reading()
            await eventually(lambda: gateway.server.server_state.tasks)
            await eventually(lambda: not gateway.server.server_state.tasks)
            await eventually(lambda: not gateway.server.server_state.connections)


async def test_a_client_that_reads_slowly_is_not_cut_off(gateway, monkeypatch):
    path = "/samples/01_phone_call.wav"  # written at once
    whole = len((await gateway.http.get(path)).content)
    gateway.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    monkeypatch.setattr(http_server, "HEAD_S", 0.05)
    monkeypatch.setattr(http_server, "KEEP_ALIVE_S", 0.0)
    async with connected(gateway) as (reader, writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        await asyncio.sleep(0.5)
        writer.transport.resume_reading()
        assert len(await ends(reader)) == whole


async def test_connections_are_limited():
    async with gateway_for(max_connections=2) as gateway:
        async with connected(gateway), connected(gateway):
            await eventually(lambda: len(gateway.server.connections) == 2)
            async with connected(gateway) as (reader, writer):
                writer.write(b"GET /health HTTP/1.1\r\n")
                assert (await ends(reader)).startswith(b"HTTP/1.1 503 ")
        await eventually(lambda: not gateway.server.connections)
        assert (await gateway.http.get("/health")).status_code == 200


async def test_sessions_are_limited_in_all_and_per_caller():
    server = ScriptedTranscription(RESPONSES[:2], hangs=True)
    settings = {"tokens": TOKENS, "max_sessions": 2, "max_sessions_per_token": 1}
    async with gateway_for(server, **settings) as gateway:
        anna, ben = (gateway.api.with_options(api_key=key) for key in (ANNA, BEN))
        stream = await anna.audio.transcriptions.create(file=RECORDING, model=MODEL, stream=True)
        with pytest.raises(openai.RateLimitError, match="holds 1 sessions of 'anna'") as refused:
            await anna.audio.transcriptions.create(file=("a.wav", b"0" * 3_000_000), model=MODEL)
        assert refused.value.response.headers["retry-after"] == "1"
        headers = {"Authorization": f"Bearer {ANNA}"}
        for path in ("/live", "/v1/realtime?intent=transcription"):
            url = f"ws://{gateway.server.address}{path}"
            error, code = await socket_refusal(url, additional_headers=headers)
            assert (error["code"], code) == ("rate_limit_exceeded", 1013)
            assert gateway.num_sessions == 1
        assert (await anna.models.list()).data  # not a session
        other = await ben.audio.transcriptions.create(file=RECORDING, model=MODEL, stream=True)
        assert gateway.num_sessions == 2
        for open_stream in (stream, other):
            await open_stream.close()
        await eventually(lambda: gateway.num_sessions == 0)


@pytest.mark.parametrize("path", ["/live", "/v1/realtime?intent=transcription"])
async def test_idle_websockets_take_no_session(path):
    start = json.dumps({"type": "start", "sample_rate": 16_000})
    append = json.dumps({"type": "input_audio_buffer.append", "audio": "AAAAAAAA"})
    audio = bytes(32) if path == "/live" else append
    server = ScriptedTranscription(RESPONSES[:2], hangs=True)
    async with gateway_for(server, max_sessions=1) as gateway, AsyncExitStack() as stack:
        url = f"ws://{gateway.server.address}{path}"
        idle = [await stack.enter_async_context(websockets.connect(url)) for _ in range(3)]
        for socket in idle:
            if path == "/live":
                await socket.send(start)
        assert gateway.num_sessions == 0
        await idle[0].send(audio)
        await eventually(lambda: gateway.num_sessions == 1)
        await idle[1].send(audio)
        with pytest.raises(websockets.ConnectionClosed) as closed:
            while True:
                last = json.loads(await idle[1].recv())
        assert (last["error"]["code"], closed.value.rcvd.code) == ("rate_limit_exceeded", 1013)
        await idle[0].close()
        await eventually(lambda: gateway.num_sessions == 0)
        await idle[2].send(audio)
        await eventually(lambda: gateway.num_sessions == 1)


@pytest.mark.parametrize("path", ["/live", "/v1/audio/transcriptions"])
async def test_a_connection_is_read_in_small_pieces(gateway, path, monkeypatch):
    sizes: list[int] = []
    for kind in (H11Protocol, WebSocketsSansIOProtocol):
        take = kind.data_received

        def taken(self, data, take=take):
            sizes.append(len(data))
            take(self, data)

        monkeypatch.setattr(kind, "data_received", taken)
    async with connected(gateway) as (reader, writer):
        if path == "/live":
            writer.write((handshake("/live") + "\r\n").encode())
            await reader.readuntil(b"\r\n\r\n")
        else:
            writer.write(f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: 999999\r\n\r\n".encode())
            await reader.readuntil(b"}}")
        sizes.clear()
        writer.write(bytes([0x82, 0xFF, *(500_000).to_bytes(8, "big"), 0, 0, 0, 0]) + bytes(500_000))
        await eventually(lambda: sum(sizes) > 100_000)
    assert max(sizes) <= http_server.READ_BYTES


async def test_a_field_may_be_as_large_as_its_name_says(gateway):
    limits = {
        "prompt": MAX_FIELD_BYTES,
        "hint": MAX_HINT_BYTES,
        "known_speaker_references[]": MAX_SAMPLE_BYTES,
    }
    for name, most in limits.items():
        at_most, above = [
            await gateway.http.post(
                "/v1/audio/transcriptions", data={"model": MODEL, name: "a" * size}, files={"file": RECORDING}
            )
            for size in (most, most + 1)
        ]
        assert "more than" not in at_most.text
        assert above.status_code == 400
        assert "more than" in above.text or "exceeded maximum size" in above.text
