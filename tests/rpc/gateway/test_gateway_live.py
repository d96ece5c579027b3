"""The page's WebSocket and files."""

import json

import pytest

from specwhisper.wire.v1 import decoding_pb2
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import START, gateway_for, messages_of, page
from tests.rpc.live_scripts import EVERYTHING, TWO_UTTERANCES

PCM = bytes(32_000)


async def test_a_transcription():
    server = ScriptedTranscription(TWO_UTTERANCES)
    way = {"mode": "target-only", "added_latency_ms": 40}
    async with gateway_for(server) as gateway:
        async with page(gateway, START | way | {"languages": "en"}) as socket:
            for start in range(0, len(PCM), 3_200):
                await socket.send(PCM[start : start + 3_200])
            await socket.send(json.dumps({"type": "finish"}))
            messages, code = await messages_of(socket)
        figures = await gateway.all_answered()
    kinds = [message["type"] for message in messages]
    assert kinds == ["ready", "speech", "update", "speech", "speech", "update", "update", "done"]
    assert code == 1000
    assert messages[0]["target"] == "large"
    assert messages[1] == {"type": "speech", "event": "begin", "at_s": 0.1}
    first = messages[2]
    assert (first["verified"], first["tentative"], first["received_s"]) == (" their", " bye", 1.0)
    said = {"text": " Hello", "start_s": 0.1, "end_s": 0.5}
    assert first["finals"] == [said | {"utterance": 1, "is_utterance_end": False, "words": []}]
    assert first["statistics"]["accepted"] / first["statistics"]["verified"] == 0.75
    assert first["statistics"]["round_trip_ms"] == 0.16
    assert server.audio == PCM
    config = server.config
    assert config.config.mode == decoding_pb2.MODE_TARGET_ONLY
    assert (config.added_latency_ms, config.config.decoding.languages) == (40, ["en"])
    assert figures['sessions_total{code="1000",route="/live"}'] == 1


async def test_mode_and_added_latency_change():
    server = ScriptedTranscription(TWO_UTTERANCES[:3], reads_everything=False, hangs=True)
    async with gateway_for(server) as gateway, page(gateway) as socket:
        await socket.send(PCM)
        while json.loads(await socket.recv())["type"] != "update":
            pass
        await socket.send(json.dumps({"type": "change", "mode": "full", "added_latency_ms": 100}))
        await server.left
        while json.loads(await socket.recv())["type"] != "update":  # of the second call
            pass
        assert server.config.config.mode == decoding_pb2.MODE_FULL
        assert server.config.added_latency_ms == 100


async def test_audio_is_counted_once_after_a_resume():
    point = {"state": "", "start_sample": 16_000}
    async with gateway_for(ScriptedTranscription(TWO_UTTERANCES)) as gateway:
        async with page(gateway, START | {"resume_point": point}) as socket:
            await socket.send(json.dumps({"type": "finish"}))
            await messages_of(socket)
        figures = await gateway.all_answered()
    assert figures["audio_seconds_total"] == 1.5  # of 2.5 s


async def test_an_unknown_language_is_refused_without_a_list_of_the_known_ones(gateway):
    async with page(gateway, START | {"languages": "en,xx"}) as socket:
        await socket.send(PCM)
        [message], closed = await messages_of(socket)
    assert closed == 1008
    sentence = "The target has no language 'xx': choose one of the list, or leave it empty."
    assert message["error"]["message"] == sentence


@pytest.mark.parametrize("frame", ["no JSON", b"\0\0", json.dumps({"type": "finish"})])
async def test_a_stream_without_a_start_is_refused(gateway, frame):
    async with page(gateway, start=None) as socket:
        await socket.send(frame)
        [message], closed = await messages_of(socket)
    assert (message["type"], message["error"]["type"]) == ("error", "invalid_request_error")
    assert closed == 1008


async def test_later_errors_are_reported():
    change = json.dumps({"type": "change", "mode": "sync"})
    async with gateway_for(ScriptedTranscription(EVERYTHING)) as gateway, page(gateway) as socket:
        for frame in ("no JSON", json.dumps(START), change):
            await socket.send(frame)
            assert json.loads(await socket.recv())["type"] == "error"
        await socket.send(PCM)
        await socket.send(json.dumps({"type": "finish"}))
        messages, code = await messages_of(socket)
    assert (messages[-1]["type"], code) == ("done", 1000)


async def test_too_large_an_audio_message(gateway):
    async with page(gateway) as socket:
        await socket.send(bytes(300_000))
        messages, code = await messages_of(socket)
    assert (messages[0]["type"], code) == ("error", 1009)


async def test_disconnecting_ends_the_transcription():
    server = ScriptedTranscription(TWO_UTTERANCES[:3], reads_everything=False, hangs=True)
    async with gateway_for(server) as gateway:
        async with page(gateway) as socket:
            await socket.send(PCM)
            await socket.recv()
            await socket.close(4321)
        await server.left
        figures = await gateway.all_answered()
    assert figures["active_sessions"] == 0
    assert figures['errors_total{kind="ClientGone"}'] == 1
    assert figures['sessions_total{code="4000",route="/live"}'] == 1  # a client's code isn't a label


async def test_the_page_and_its_files():
    async with gateway_for(api_key="key") as gateway:
        index = await gateway.http.get("/")
        assert "<title>specwhisper</title>" in index.text
        policy = index.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "style=" not in index.text
        assert "<script>" not in index.text
        for name, media_type in (("main.js", "text/javascript"), ("style.css", "text/css")):
            reply = await gateway.http.get(f"/page/{name}")
            assert (reply.status_code, reply.headers["content-type"]) == (200, f"{media_type}; charset=utf-8")
        for missing in ("/page/__init__.py", "/samples/none.wav"):
            assert (await gateway.http.get(missing)).status_code == 404
        assert (await gateway.http.get("/page/..%2fserver.py")).status_code == 401


async def test_the_samples(gateway):
    samples = (await gateway.http.get("/samples")).json()
    assert samples[0]["name"] == "01_phone_call"
    recording = await gateway.http.get("/samples/01_phone_call.wav")
    assert recording.content[:4] == b"RIFF"
    assert len(recording.content) == pytest.approx(samples[0]["seconds"] * 32_000, abs=500)
