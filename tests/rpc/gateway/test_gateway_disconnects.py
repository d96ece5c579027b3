"""When a client disconnects, its transcription ends and its upload is deleted."""

import asyncio
import tempfile

import pytest

from tests.rpc.client_scripts import RESPONSES, ScriptedTranscription
from tests.rpc.gateways import connected, gateway_for
from tests.rpc.services import eventually


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("stream", [False, True])
async def test_disconnecting_before_the_first_text(folder, stream):
    server = ScriptedTranscription(RESPONSES[:1], hangs=True)
    async with gateway_for(server) as gateway:
        asking = asyncio.create_task(gateway.transcribe(stream=stream))
        await server.has_read_everything.wait()
        assert len(list(folder.iterdir())) == 1
        asking.cancel()
        await server.left
        figures = await gateway.all_answered()
    assert figures['errors_total{kind="ClientGone"}'] == 1
    assert figures['requests_total{route="/v1/audio/transcriptions",status="499"}'] == 1
    assert list(folder.iterdir()) == []


async def test_disconnecting_in_the_middle_of_a_stream(folder):
    server = ScriptedTranscription(RESPONSES[:2], hangs=True)
    async with gateway_for(server) as gateway:
        stream = await gateway.transcribe(stream=True)
        await anext(aiter(stream))
        await stream.close()
        await server.left
        figures = await gateway.all_answered()
    assert figures['errors_total{kind="ClientGone"}'] == 1
    assert list(folder.iterdir()) == []


async def test_disconnecting_in_the_middle_of_the_upload(folder):
    server = ScriptedTranscription()
    async with gateway_for(server) as gateway:
        async with connected(gateway) as (_, writer):
            writer.write(
                b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: here\r\nContent-Length: 5000000\r\n"
                b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
                b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + b"0" * 2_000_000
            )
            await writer.drain()
            await eventually(lambda: len(gateway.server.server_state.tasks) == 1)
        figures = await gateway.all_answered()
    assert figures['errors_total{kind="ClientGone"}'] == 1
    assert server.config is None
    assert list(folder.iterdir()) == []


async def test_a_stop_waits_for_the_drain_timeout_only(folder):
    server = ScriptedTranscription(RESPONSES[:2], hangs=True)
    async with gateway_for(server, drain_timeout_s=0) as gateway:
        stream = await gateway.transcribe(stream=True)
        await anext(aiter(stream))
        gateway.server.stop()
        await server.left
    assert list(folder.iterdir()) == []
