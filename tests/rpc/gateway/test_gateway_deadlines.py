"""The session timeout ends any transcription, reports it and frees its slot."""

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace

import openai
import pytest
import websockets

from specwhisper_gateway import state as lasting
from tests.rpc.client_scripts import RESPONSES, ScriptedTranscription
from tests.rpc.gateways import gateway_for
from tests.rpc.live_scripts import TWO_UTTERANCES
from tests.rpc.realtime import base64_of

DAY_S = 86_400.0
PCM = bytes(32_000)
SENTENCE = "the limit of this gateway: continue in another one."


@pytest.fixture
def end_now(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that lets the newest timeout expire."""
    limits: list[asyncio.Timeout] = []

    def timeout_at(when_s: float) -> asyncio.Timeout:
        limits.append(asyncio.timeout_at(when_s))
        return limits[-1]

    monkeypatch.setattr(lasting, "timeout_at", timeout_at)
    return lambda: limits[-1].reschedule(0)


async def test_a_missing_answer_reaches_the_session_timeout(end_now):
    server = ScriptedTranscription(RESPONSES[:2], hangs=True)
    async with gateway_for(server) as gateway:
        asking = asyncio.create_task(gateway.transcribe())
        await server.has_read_everything.wait()
        end_now()
        with pytest.raises(openai.APIStatusError, match=f"86400 s, {SENTENCE}") as refused:
            await asking
        assert (refused.value.status_code, refused.value.code) == (408, "session_expired")
        await server.left
        figures = await gateway.all_answered()
    assert figures['errors_total{kind="SessionExpired"}'] == 1
    assert figures["active_transcriptions"] == 0


async def test_an_endless_stream_reaches_the_session_timeout(end_now):
    server = ScriptedTranscription(RESPONSES[:2], hangs=True)
    async with gateway_for(server) as gateway:
        stream = await gateway.transcribe(stream=True)
        assert (await anext(aiter(stream))).delta == "Hello there."
        end_now()
        with pytest.raises(openai.APIError, match=SENTENCE) as raised:
            await anext(aiter(stream))
        assert raised.value.code == "session_expired"
        await server.left
        figures = await gateway.all_answered()
    assert figures['errors_total{kind="SessionExpired"}'] == 1
    assert figures["active_transcriptions"] == 0


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/live", [json.dumps({"type": "start", "sample_rate": 16_000}), PCM]),
        ("/v1/realtime", [json.dumps({"type": "input_audio_buffer.append", "audio": base64_of(PCM)})]),
    ],
)
async def test_a_live_session_reaches_the_session_timeout(path, sent, end_now):
    server = ScriptedTranscription(TWO_UTTERANCES[:3], reads_everything=False, hangs=True)
    async with gateway_for(server) as gateway:
        async with websockets.connect(f"ws://{gateway.server.address}{path}") as socket:
            for frame in sent:
                await socket.send(frame)
            while "Hello" not in await socket.recv():
                pass
            end_now()
            while (message := json.loads(await socket.recv()))["type"] != "error":
                pass
            assert message["error"]["code"] == "session_expired"
            assert message["error"]["message"] == f"This session has lasted {DAY_S:g} s, {SENTENCE}"
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await socket.recv()
        # After this code the page reconnects.
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1013, "session_expired")
        await server.left
        figures = await gateway.all_answered()
    assert figures["active_transcriptions"] == 0


async def test_another_timeout_is_not_the_session_timeout():
    gateway = SimpleNamespace(config=SimpleNamespace(session_timeout_s=DAY_S))
    scope = {"type": "http", "state": {}, "app": SimpleNamespace(state=SimpleNamespace(gateway=gateway))}
    with pytest.raises(TimeoutError):
        async with lasting.within_time(lasting.HTTPConnection(scope)):
            raise TimeoutError
