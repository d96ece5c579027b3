"""The page's WebSocket and files."""

import asyncio
import base64
import io
import json
from contextlib import asynccontextmanager

import pytest
import soundfile
import websockets

from specwhisper.errors import ServerFull
from specwhisper.wire.v1 import decoding_pb2
from specwhisper_gateway.page_files import replay_page
from specwhisper_gateway.record import recorded, sound_url
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import gateway_for
from tests.rpc.live_scripts import EVERYTHING, TWO_UTTERANCES

START = {"type": "start", "sample_rate": 16_000}
PCM = bytes(32_000)


@asynccontextmanager
async def page(gateway, start=START, **settings):
    """Open a WebSocket of the page, and send its first message."""
    async with websockets.connect(f"ws://{gateway.server.address}/live", **settings) as socket:
        if start is not None:
            await socket.send(json.dumps(start))
        yield socket


async def received(socket):
    """Return all messages until the end, and the close code."""
    messages = []
    try:
        async for message in socket:
            messages.append(json.loads(message))
    except websockets.ConnectionClosedError:
        pass
    return messages, socket.close_code


async def test_a_transcription():
    server = ScriptedTranscription(TWO_UTTERANCES)
    way = {"mode": "target-only", "added_latency_ms": 40}
    async with gateway_for(server) as gateway:
        async with page(gateway, START | way | {"languages": "en"}) as socket:
            for start in range(0, len(PCM), 3_200):
                await socket.send(PCM[start : start + 3_200])
            await socket.send(json.dumps({"type": "finish"}))
            messages, code = await received(socket)
        figures = await gateway.all_answered()
    kinds = [message["type"] for message in messages]
    assert kinds == ["ready", "speech", "update", "speech", "speech", "update", "update", "done"]
    assert code == 1000
    assert messages[0]["target"] == "large"
    assert messages[1] == {"type": "speech", "event": "begin", "at_s": 0.1}
    first = messages[2]
    assert (first["verified"], first["tentative"], first["received_s"]) == (" their", " bye", 1.0)
    assert first["finals"] == [
        {
            "text": " Hello",
            "start_s": 0.1,
            "end_s": 0.5,
            "utterance": 1,
            "is_utterance_end": False,
            "words": [],
        }
    ]
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
            await received(socket)
        figures = await gateway.all_answered()
    assert figures["audio_seconds_total"] == 1.5  # of 2.5 s


async def test_an_unknown_language_is_refused_without_a_list_of_the_known_ones(gateway):
    async with page(gateway, START | {"languages": "en,xx"}) as socket:
        await socket.send(PCM)
        [message], closed = await received(socket)
    assert closed == 1008
    sentence = "The target has no language 'xx': choose one of the list, or leave it empty."
    assert message["error"]["message"] == sentence


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("no JSON", 1008),
        (b"\0\0", 1008),
        (json.dumps({"type": "finish"}), 1008),
        (json.dumps({"type": "start"}), 1008),
        (json.dumps({"type": "start", "sample_rate": 400}), 1008),
        (json.dumps(START | {"mode": "sync"}), 1008),
        (json.dumps(START | {"gamma": 4}), 1008),
        (json.dumps(START | {"volume": 11}), 1008),
        (json.dumps(START | {"languages": 3}), 1008),
    ],
)
async def test_a_stream_without_a_start_is_refused(gateway, frame, code):
    async with page(gateway, start=None) as socket:
        await socket.send(frame)
        messages, closed = await received(socket)
    assert closed == code
    assert [message["type"] for message in messages] == ["error"]
    assert messages[0]["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "frame", ["no JSON", json.dumps(START), json.dumps({"type": "change", "mode": "sync"})]
)
async def test_later_errors_are_reported(frame):
    async with gateway_for(ScriptedTranscription(EVERYTHING)) as gateway, page(gateway) as socket:
        await socket.send(frame)
        assert json.loads(await socket.recv())["type"] == "error"
        await socket.send(PCM)
        await socket.send(json.dumps({"type": "finish"}))
        messages, code = await received(socket)
    assert (messages[-1]["type"], code) == ("done", 1000)


async def test_too_large_an_audio_message(gateway):
    async with page(gateway) as socket:
        await socket.send(bytes(300_000))
        messages, code = await received(socket)
    assert (messages[0]["type"], code) == ("error", 1009)


async def test_a_full_server_closes_with_1013():
    error = ServerFull("The draft server is full: try again later.")
    server = ScriptedTranscription((), error=error, reads_everything=False)
    async with gateway_for(server) as gateway, page(gateway) as socket:
        await socket.send(PCM)
        messages, code = await received(socket)
    assert code == 1013
    assert [message["error"]["code"] for message in messages] == ["rate_limit_exceeded"]
    assert messages[0]["error"]["message"] == str(error)


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
    assert figures['sessions_total{code="4000",route="/live"}'] == 1  # a client's code is no label


async def test_pages_that_may_connect():
    async with gateway_for(api_key="right") as gateway:
        protocols = ["specwhisper.live", "openai-insecure-api-key.right"]
        with pytest.raises(websockets.InvalidStatus, match="403"):
            async with page(gateway, subprotocols=protocols, origin="https://elsewhere.example"):
                pass
        async with page(gateway, subprotocols=protocols, origin=gateway.url) as socket:
            assert socket.subprotocol == "specwhisper.live"


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
        assert (await gateway.http.get("/page/..%2fapp.py")).status_code == 401


async def test_the_samples(gateway):
    samples = (await gateway.http.get("/samples")).json()
    assert samples[0]["name"] == "01_phone_call"
    recording = await gateway.http.get("/samples/01_phone_call.wav")
    assert recording.content[:4] == b"RIFF"
    assert len(recording.content) == pytest.approx(samples[0]["seconds"] * 32_000, abs=500)


async def test_a_session_is_recorded_without_a_browser():
    async def at_once(_):
        await asyncio.sleep(0)

    async with serving(ScriptedTranscription(TWO_UTTERANCES)) as address:
        recording = await recorded("talk.wav", PCM + b"\0\x40", address, "en", sleep=at_once)
    kinds = [event["type"] for event in recording["events"]]
    assert kinds == ["ready", "speech", "update", "speech", "speech", "update", "update", "done"]
    times = [event["at"] for event in recording["events"]]
    assert times == sorted(times)
    assert recording["peaks"] == [*[0] * 20, 128]
    assert "talk.wav" in replay_page(recording)


def test_the_sound_of_a_replay_is_complete():
    kind, _, sound = sound_url(PCM).partition(",")
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(sound)))
    assert (kind, rate, len(samples)) == ("data:audio/mpeg;base64", 16_000, len(PCM) // 2)
