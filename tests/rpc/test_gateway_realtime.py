"""Realtime transcription with OpenAI's own clients leaves no session."""

import asyncio
import base64
import json
from contextlib import asynccontextmanager

import openai
import pytest
import websockets

from specwhisper.errors import PairMismatch, ServerFull, UnsupportedOption
from specwhisper_gateway.transport.messages import MAX_MESSAGE_BYTES
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.gateways import api_settings, running_gateway
from tests.rpc.live_scripts import EVERYTHING, TWO_UTTERANCES
from tests.rpc.services import eventually

QUERY = {"intent": "transcription"}
PCM = bytes(range(256)) * 300  # 1.6 s at 24 kHz
SECONDS = len(PCM) / 48_000
MANUAL = {"type": "transcription", "audio": {"input": {"turn_detection": None}}}
SAME_RATE = {"type": "transcription", "audio": {"input": {"format": {"type": "audio/pcm", "rate": 16_000}}}}
UTTERANCE = (
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
)
DELTA = "conversation.item.input_audio_transcription.delta"
COMPLETED = "conversation.item.input_audio_transcription.completed"
TOO_LARGE = "message_too_large"
HUGE = 10**400  # no float is as large
FAILED = "conversation.item.input_audio_transcription.failed"


def base64_of(pcm):
    return base64.b64encode(pcm).decode()


def pieces(pcm, num_bytes=480_000):
    return [pcm[start : start + num_bytes] for start in range(0, len(pcm), num_bytes)]


@asynccontextmanager
async def session(gateway, **settings):
    """Create a session with the asynchronous client."""
    async with gateway.api.realtime.connect(extra_query=QUERY, **settings) as connection:
        created = await connection.recv()
        assert created.type == "session.created"
        yield connection


async def up_to(connection, kind, count=1):
    """Return all events up to ``count`` of a kind."""
    events = []
    while sum(event.type == kind for event in events) < count:
        events.append(await connection.recv())
    return events


async def close_code(connection, frame=None):
    """Return the code that a session is closed with, also while a frame is sent."""
    with pytest.raises(websockets.ConnectionClosed) as closed:
        if frame is not None:
            await connection.send_raw(frame)
        while True:
            await connection.recv()
    return closed.value.rcvd.code


async def test_utterances_that_the_server_separates():
    server = ScriptedTranscription(TWO_UTTERANCES, reads_everything=False, hangs=True)
    async with serving(server) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            await connection.input_audio_buffer.append(audio=base64_of(PCM))
            events = await up_to(connection, COMPLETED, 2)
        await server.left
    kinds = [event.type for event in events]
    assert kinds[:2] == [UTTERANCE[0], DELTA]
    assert kinds[2:7] == [*UTTERANCE[1:], UTTERANCE[0]]
    assert kinds[7:9] == [DELTA, COMPLETED]
    assert kinds[9] == DELTA  # the second utterance's end was not sent: its last final segment is its end
    assert kinds[10:] == [*UTTERANCE[1:], COMPLETED]
    first, second = (event for event in events if event.type == COMPLETED)
    assert (first.transcript, second.transcript) == ("Hello there.", "Bye.")
    assert [event.delta for event in events if event.type == DELTA] == ["Hello", " there.", "Bye."]
    assert first.usage.seconds == pytest.approx(1.1)
    started = [event for event in events if event.type == UTTERANCE[0]]
    assert [event.audio_start_ms for event in started] == [100, 1300]
    committed = [event for event in events if event.type == UTTERANCE[2]]
    assert [event.previous_item_id for event in committed] == [None, first.item_id]
    assert [event.item_id for event in started] == [first.item_id, second.item_id]
    items = [event.item.id for event in events if event.type == "conversation.item.added"]
    assert items == [first.item_id, second.item_id]


async def test_the_synchronous_client_commits():
    def talk(api):
        with api.realtime.connect(extra_query=QUERY) as connection:
            kinds = [connection.recv().type]
            connection.session.update(session=MANUAL)
            connection.input_audio_buffer.append(audio=base64_of(PCM))
            connection.input_audio_buffer.commit()
            while kinds[-1] != COMPLETED:
                event = connection.recv()
                kinds.append(event.type)
            return kinds, event

    server = ScriptedTranscription(EVERYTHING)
    async with serving(server) as address, running_gateway(address) as gateway:
        kinds, completed = await gateway.in_thread(talk)
        figures = await gateway.all_answered()
    assert kinds == ["session.created", "session.updated", *UTTERANCE[2:], DELTA, COMPLETED]
    assert completed.transcript == "Hello there."
    assert completed.usage.seconds == pytest.approx(SECONDS, abs=0.001)
    assert server.config.endpointing.disabled
    assert not server.config.interim_results
    assert figures['sessions_total{code="1000",route="/v1/realtime"}'] == 1
    assert figures["active_sessions"] == 0
    assert figures["audio_seconds_total"] == pytest.approx(SECONDS)
    assert figures["verified_tokens_total"] == 8


async def test_settings_reach_the_draft_server():
    audio_input = {
        "format": {"type": "audio/pcm", "rate": 16_000},
        "transcription": {
            "model": "large",
            "language": "de",
            "prompt": "Bienen",
            "keywords": ["Imker", "Wabe"],
        },
        "turn_detection": {"type": "server_vad", "threshold": 0.7, "silence_duration_ms": 150},
    }
    server = ScriptedTranscription(EVERYTHING)
    async with serving(server) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            await connection.session.update(
                session={"type": "transcription", "audio": {"input": audio_input}}
            )
            updated = await connection.recv()
            # In odd pieces of whole samples; 16 kHz arrives byte for byte.
            for start in range(0, len(PCM), 4_242):
                await connection.input_audio_buffer.append(audio=base64_of(PCM[start : start + 4_242]))
            await connection.input_audio_buffer.commit()
            await up_to(connection, COMPLETED)
    received = updated.session.audio.input
    assert (received.transcription.language, received.transcription.prompt) == ("de", "Bienen")
    assert (received.turn_detection.threshold, received.turn_detection.prefix_padding_ms) == (0.7, 300)
    assert server.audio == PCM
    decoding = server.config.config.decoding
    assert (decoding.language, decoding.initial_prompt, decoding.hotwords) == ("de", "Bienen", "Imker, Wabe")
    endpointing = server.config.endpointing
    assert endpointing.threshold == pytest.approx(0.7)
    assert (endpointing.silence_duration_ms, endpointing.pause_ms) == (150, 150)


async def test_an_update_changes_only_what_it_names():
    async with serving(ScriptedTranscription()) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            for audio_input in ({"transcription": {"language": "de"}}, {"turn_detection": None}):
                await connection.session.update(
                    session={"type": "transcription", "audio": {"input": audio_input}}
                )
                updated = await connection.recv()
    assert updated.session.audio.input.transcription.language == "de"
    assert updated.session.audio.input.turn_detection is None


async def test_the_region_of_a_language_is_ignored():
    audio_input = {"transcription": {"language": "de-CH"}, "turn_detection": None}
    server = ScriptedTranscription(EVERYTHING)
    async with serving(server) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            await connection.session.update(
                session={"type": "transcription", "audio": {"input": audio_input}}
            )
            updated = await connection.recv()
            await connection.input_audio_buffer.append(audio=base64_of(PCM))
            await connection.input_audio_buffer.commit()
            await up_to(connection, COMPLETED)
    assert updated.session.audio.input.transcription.language == "de"
    assert server.config.config.decoding.language == "de"


async def test_the_format_of_the_beta_api():
    flat = {
        "input_audio_format": "pcm16",
        "input_audio_transcription": {"model": "whisper-1", "language": "en"},
        "turn_detection": None,
    }
    async with serving(ScriptedTranscription(EVERYTHING)) as address, running_gateway(address) as gateway:
        beta = {"OpenAI-Beta": "realtime=v1"}
        async with gateway.api.realtime.connect(extra_query=QUERY, extra_headers=beta) as connection:
            kinds = [(await connection.recv()).type]
            await connection.send({"type": "transcription_session.update", "session": flat})
            updated = json.loads(await connection.recv_bytes())
            await connection.input_audio_buffer.append(audio=base64_of(PCM))
            await connection.input_audio_buffer.commit()
            kinds += [event.type for event in await up_to(connection, COMPLETED)]
    assert kinds[0] == "transcription_session.created"
    assert updated["type"] == "transcription_session.updated"
    assert updated["session"]["input_audio_transcription"]["language"] == "en"
    assert kinds[1:3] == ["input_audio_buffer.committed", "conversation.item.created"]


@pytest.mark.parametrize(
    ("audio_input", "param"),
    [
        ({"format": {"type": "audio/pcmu"}}, "audio.input.format.type"),
        ({"format": {"type": "audio/pcm", "rate": 44_100}}, "audio.input.format.rate"),
        ({"noise_reduction": {"type": "near_field"}}, "audio.input.noise_reduction"),
        ({"turn_detection": {"type": "semantic_vad"}}, "audio.input.turn_detection.type"),
        ({"turn_detection": {"type": "server_vad", "threshold": 3}}, "audio.input.turn_detection.threshold"),
        (
            {"turn_detection": {"type": "server_vad", "create_response": True}},
            "audio.input.turn_detection.create_response",
        ),
        ({"turn_detection": {"prefix_padding_ms": HUGE}}, "audio.input.turn_detection.prefix_padding_ms"),
        (
            {"turn_detection": {"silence_duration_ms": -HUGE}},
            "audio.input.turn_detection.silence_duration_ms",
        ),
        ({"turn_detection": {"silence_duration_ms": 31}}, "audio.input.turn_detection.silence_duration_ms"),
        ({"turn_detection": {"threshold": HUGE}}, "audio.input.turn_detection.threshold"),
        ({"transcription": {"language": "tlh"}}, "audio.input.transcription.language"),
        ({"transcription": {"languages": ["de", "en"]}}, "audio.input.transcription.languages"),
        ({"transcription": {"temperature": 1}}, "audio.input.transcription.temperature"),
        ({"transcription": {"delay": "low"}}, "audio.input.transcription.delay"),
    ],
)
async def test_settings_that_are_not_supported(audio_input, param):
    async with serving(ScriptedTranscription()) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            update = {"type": "transcription", "audio": {"input": audio_input}}
            await connection.send({"type": "session.update", "session": update, "event_id": "mine"})
            refused = await connection.recv()
            await connection.session.update(session=MANUAL)  # the session continues
            assert (await connection.recv()).type == "session.updated"
    assert (refused.type, refused.error.type) == ("error", "invalid_request_error")
    assert (refused.error.param, refused.error.event_id) == (f"session.{param}", "mine")
    assert refused.error.message[-1] == "."


@pytest.mark.parametrize(
    ("session_", "param"),
    [
        ({"type": "realtime"}, "session.type"),
        (
            {"type": "transcription", "include": ["item.input_audio_transcription.logprobs"]},
            "session.include",
        ),
        ({"type": "transcription", "instructions": "Be kind."}, "session.instructions"),
        ({"type": "transcription", "audio": {"input": {"transcription": {"model": "gpt"}}}}, "model"),
        ("no object", "session"),
    ],
)
async def test_sessions_that_are_not_offered(session_, param):
    async with serving(ScriptedTranscription()) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            await connection.send({"type": "session.update", "session": session_})
            refused = await connection.recv()
    assert (refused.type, refused.error.param) == ("error", param)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("no JSON", "invalid_json"),
        ("[" * 60_000, "invalid_json"),
        ("[" * 100_000, TOO_LARGE),
        (json.dumps({"type": "session.update", "session": dict.fromkeys(map(str, range(2_049)))}), TOO_LARGE),
        ('{"type": "session.update", "session": ' + '{"audio": ' * 9 + "1" + "}" * 10, TOO_LARGE),
        ('{"type": "session.update", "session": {"prompt": "' + "x" * 70_000 + '"}}', TOO_LARGE),
        (
            '{"type": "x", "event_id": "\\ud800"}',
            "invalid_json",
        ),  # half a character, which cannot be encoded again
        ("[]", "invalid_value"),
        ('{"type": "response.create"}', "invalid_value"),
        ('{"type": ["input_audio_buffer.append"]}', "invalid_value"),
        ('{"type": "input_audio_buffer.append"}', "invalid_value"),
        ('{"type": "input_audio_buffer.append", "audio": "?"}', "invalid_base64"),
        ('{"type": "input_audio_buffer.append", "audio": "ünïcode="}', "invalid_base64"),
        ('{"type": "input_audio_buffer.append", "audio": "AAAA"}', "invalid_value"),
        ('{"type": "input_audio_buffer.commit"}', "input_audio_buffer_commit_empty"),
        (b"\0" * 640, "invalid_message"),
        ('{"type": "input_audio_buffer.append", "audio": "' + "A" * 1_000_001 + '"}', "invalid_base64"),
    ],
)
async def test_an_unknown_event_does_not_end_the_session(frame, code):
    async with serving(ScriptedTranscription(EVERYTHING)) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            await connection.send_raw(frame)
            refused = await connection.recv()
            await connection.input_audio_buffer.append(audio=base64_of(PCM))
            await connection.input_audio_buffer.commit()
            completed = (await up_to(connection, COMPLETED))[-1]
    assert (refused.type, refused.error.code) == ("error", code)
    assert completed.transcript == "Hello there."


async def test_a_frame_that_must_end_the_session():
    async with serving(ScriptedTranscription()) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            assert await close_code(connection, "x" * (MAX_MESSAGE_BYTES + 1)) == 1009
        figures = await gateway.all_answered()
    assert figures['sessions_total{code="1009",route="/v1/realtime"}'] == 1


async def test_cleared_audio_is_discarded():
    server = ScriptedTranscription(EVERYTHING, hangs=True)
    async with serving(server) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            await connection.session.update(session=MANUAL)
            await connection.input_audio_buffer.append(audio=base64_of(PCM))
            await eventually(lambda: server.audio != b"")
            await connection.input_audio_buffer.clear()
            assert [event.type for event in await up_to(connection, "input_audio_buffer.cleared")][-2:] == [
                "session.updated",
                "input_audio_buffer.cleared",
            ]
            await server.left
            await connection.input_audio_buffer.commit()
            assert (await connection.recv()).error.code == "input_audio_buffer_commit_empty"


async def test_committed_silence_has_no_text():
    server = ScriptedTranscription(TWO_UTTERANCES[:1])
    async with serving(server) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            await connection.input_audio_buffer.append(audio=base64_of(bytes(9_600)))
            await connection.input_audio_buffer.commit()
            events = await up_to(connection, COMPLETED)
    assert [event.type for event in events] == [*UTTERANCE[2:], COMPLETED]
    assert events[-1].transcript == ""


async def test_turns_share_one_session_on_the_draft_server():
    server = ScriptedTranscription(EVERYTHING)
    async with serving(server) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            await connection.session.update(session=MANUAL)
            for _ in range(8):
                await connection.input_audio_buffer.append(audio=base64_of(PCM))
                await connection.input_audio_buffer.commit()
            events = await up_to(connection, COMPLETED, 8)
    completed = [event.item_id for event in events if event.type == COMPLETED]
    assert completed == [event.item_id for event in events if event.type == UTTERANCE[2]]


async def test_a_long_turn_waits_for_the_one_before_it():
    class Busy(ScriptedTranscription):
        """Read no audio until allowed."""

        async def StreamingRecognize(self, request_iterator, context):
            await may_read.wait()
            self.audio = b""
            async for response in super().StreamingRecognize(request_iterator, context):
                yield response

    may_read, server = asyncio.Event(), Busy(EVERYTHING)
    long = bytes(16_000 * 2 * 90)
    async with serving(server) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            await connection.session.update(session=SAME_RATE)
            await connection.session.update(session=MANUAL)
            for pcm in (PCM, long):
                for piece in pieces(pcm):
                    await connection.input_audio_buffer.append(audio=base64_of(piece))
                await connection.input_audio_buffer.commit()
            await up_to(connection, UTTERANCE[2])  # the first is committed, the second is being sent
            may_read.set()
            events = await up_to(connection, COMPLETED, 2)
    assert "error" not in {event.type for event in events}
    assert server.audio == long
    assert events[-1].usage.seconds == 90


@pytest.mark.parametrize("received", ["header", "subprotocol"])
async def test_the_key(received):
    settings = {"api_key": "right"} if received == "header" else {"api_key": "any"}
    async with (
        serving(ScriptedTranscription()) as address,
        running_gateway(address, api_key="right") as gateway,
        openai.AsyncOpenAI(**(api_settings(gateway.url) | settings)) as api,
    ):
        if received == "header":
            async with api.realtime.connect(extra_query=QUERY) as connection:
                assert (await connection.recv()).type == "session.created"
        else:  # as browsers do, from a page of any site
            url = f"ws://{gateway.server.address}/v1/realtime?intent=transcription"
            protocols = ["realtime", "openai-insecure-api-key.right"]
            async with websockets.connect(url, subprotocols=protocols, origin="https://my.app") as socket:
                assert socket.subprotocol == "realtime"
                assert json.loads(await socket.recv())["type"] == "session.created"


async def refusal(gateway, **settings):
    """Return the status and body that a connection is refused with."""
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with gateway.api.realtime.connect(**({"extra_query": QUERY} | settings)):
            pass
    return refused.value.response.status_code, json.loads(refused.value.response.body)["error"]


async def test_connections_that_are_refused():
    async with serving(ScriptedTranscription()) as address:
        async with running_gateway(address, api_key="right") as gateway:
            status, error = await refusal(gateway)
            assert (status, error["code"]) == (401, "invalid_api_key")
        async with running_gateway(address) as gateway:
            status, error = await refusal(gateway, extra_query={})
            assert (status, error["param"]) == (400, "intent")
            status, error = await refusal(gateway, model="gpt-realtime")
            assert (status, error["code"]) == (404, "model_not_found")
            status, error = await refusal(gateway, extra_headers={"Origin": "https://elsewhere.example"})
            assert (status, error["code"]) == (403, "foreign_page")
            figures = await gateway.all_answered()
    assert figures['sessions_total{code="403",route="/v1/realtime"}'] == 1
    assert figures['errors_total{kind="ModelNotFound"}'] == 1
    async with running_gateway(address) as gateway:  # the draft server is lost
        status, error = await refusal(gateway)
    assert (status, error["code"]) == (503, "unavailable")


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (ServerFull("The draft server is full: try again later."), 1013, "rate_limit_exceeded"),
        (PairMismatch("They do not fit."), 1011, None),
    ],
)
async def test_errors_that_end_a_session(error, code, kind):
    server = ScriptedTranscription((), error=error, reads_everything=False)
    async with serving(server) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            await connection.input_audio_buffer.append(audio=base64_of(PCM))
            received = await connection.recv()
            assert (received.type, received.error.code, received.error.message) == ("error", kind, str(error))
            assert await close_code(connection) == code
        figures = await gateway.all_answered()
    assert figures[f'sessions_total{{code="{code}",route="/v1/realtime"}}'] == 1


async def test_a_refused_turn_does_not_end_the_session():
    error = UnsupportedOption("The prompt has too many tokens: shorten it.")
    async with (
        serving(ScriptedTranscription((), error=error)) as address,
        running_gateway(address) as gateway,
    ):
        async with session(gateway) as connection:
            await connection.session.update(session=MANUAL)
            await connection.input_audio_buffer.append(audio=base64_of(PCM))
            await connection.input_audio_buffer.commit()
            events = await up_to(connection, "error")
            await connection.session.update(session=MANUAL)
            assert (await connection.recv()).type == "session.updated"
    assert events[-2].type == FAILED
    assert events[-2].error.message == events[-1].error.message == str(error)


@pytest.mark.parametrize("leave", ["close", "vanish"])
async def test_a_client_that_disconnects(leave):
    server = ScriptedTranscription(TWO_UTTERANCES[:3], reads_everything=False, hangs=True)
    async with serving(server) as address, running_gateway(address) as gateway:
        async with session(gateway) as connection:
            await connection.input_audio_buffer.append(audio=base64_of(PCM))
            await up_to(connection, DELTA)
            if leave == "vanish":
                connection._connection.transport.abort()
        await server.left
        figures = await gateway.all_answered()
    assert figures["active_sessions"] == 0


async def test_a_stop_closes_with_1012():
    server = ScriptedTranscription(TWO_UTTERANCES[:3], reads_everything=False, hangs=True)
    async with serving(server) as address:
        async with running_gateway(address) as gateway:
            async with session(gateway) as connection:
                await connection.input_audio_buffer.append(audio=base64_of(PCM))
                await up_to(connection, DELTA)
                gateway.server.stop()
                assert await close_code(connection) == 1012
        await asyncio.wait_for(server.left, 5)
