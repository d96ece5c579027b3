"""Realtime transcription with OpenAI's own clients leaves no session."""

import json

import pytest

from specwhisper.options import Padding
from specwhisper.wire.codec.terms import decoding_options_from_proto
from tests.rpc.client_scripts import ScriptedTranscription
from tests.rpc.gateways import gateway_for
from tests.rpc.live_scripts import EVERYTHING, TWO_UTTERANCES
from tests.rpc.realtime import (
    COMPLETED,
    DELTA,
    INTERIM,
    MANUAL,
    PCM,
    QUERY,
    SAME_RATE,
    SECONDS,
    UTTERANCE,
    base64_of,
    pieces,
    session,
    settings,
    turn,
    up_to,
)
from tests.rpc.services import eventually


async def test_utterances_that_the_server_separates():
    server = ScriptedTranscription(TWO_UTTERANCES, reads_everything=False, hangs=True)
    async with gateway_for(server) as gateway:
        async with session(gateway) as connection:
            await connection.session.update(session=settings(transcription={"interim_results": True}))
            updated = await connection.recv()
            await connection.input_audio_buffer.append(audio=base64_of(PCM))
            events = await up_to(connection, COMPLETED, 2)
        await server.left
    assert updated.session.audio.input.transcription.interim_results
    assert server.config.interim_results
    kinds = [event.type for event in events if event.type != INTERIM]
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
    shown = [(event.item_id, event.verified, event.tentative) for event in events if event.type == INTERIM]
    assert shown == [(first.item_id, " their", " bye")]


async def test_a_client_commits():
    server = ScriptedTranscription(EVERYTHING)
    async with gateway_for(server) as gateway:
        async with session(gateway) as connection:
            await connection.session.update(session=MANUAL)
            events = await turn(connection)
        figures = await gateway.all_answered()
    assert [event.type for event in events] == ["session.updated", *UTTERANCE[2:], DELTA, COMPLETED]
    assert events[-1].transcript == "Hello there."
    assert events[-1].usage.seconds == pytest.approx(SECONDS, abs=0.001)
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
            "hint": "Die Imkerin",
            "padding": "zero",
        },
        "turn_detection": {"type": "server_vad", "threshold": 0.7, "silence_duration_ms": 150},
    }
    server = ScriptedTranscription(EVERYTHING)
    async with gateway_for(server) as gateway, session(gateway) as connection:
        await connection.session.update(session=settings(**audio_input))
        updated = await connection.recv()
        # In pieces that cut samples in two; 16 kHz arrives byte for byte.
        for piece in pieces(PCM, 4_243):
            await connection.input_audio_buffer.append(audio=base64_of(piece))
        await connection.input_audio_buffer.commit()
        await up_to(connection, COMPLETED)
    received = updated.session.audio.input
    assert (received.transcription.language, received.transcription.prompt) == ("de", "Bienen")
    assert (received.turn_detection.threshold, received.turn_detection.prefix_padding_ms) == (0.7, 300)
    assert server.audio == PCM
    decoding = server.config.config.decoding
    assert (decoding.languages, decoding.initial_prompt, decoding.hotwords) == (
        ["de"],
        "Bienen",
        "Imker, Wabe",
    )
    assert decoding.hint == "Die Imkerin"
    assert decoding_options_from_proto(decoding).padding is Padding.ZERO
    assert received.transcription.padding == "zero"
    endpointing = server.config.endpointing
    assert endpointing.threshold == pytest.approx(0.7)
    assert (endpointing.silence_duration_ms, endpointing.short_silence_ms) == (150, 150)


async def test_half_a_sample_before_a_commit_does_not_shift_the_audio_after_it():
    server = ScriptedTranscription(EVERYTHING)
    async with gateway_for(server) as gateway, session(gateway) as connection:
        await connection.session.update(session=SAME_RATE)
        await connection.session.update(session=MANUAL)
        for _ in range(2):
            server.audio = b""
            await turn(connection, PCM + b"x")
            assert server.audio == PCM


async def test_a_hint_reaches_the_turn_of_its_time():
    server = ScriptedTranscription(EVERYTHING)
    async with gateway_for(server) as gateway, session(gateway) as connection:
        await connection.send_raw(
            '{"type": "input_audio_buffer.hint", "text": "Hello", "audio_start_ms": 1200}'
        )
        for _ in range(2):
            await turn(connection)
    assert [hint.text for hint in server.hints] == ["Hello", "Hello"]
    starts = [hint.start_sample / 16_000 for hint in server.hints]
    assert starts == pytest.approx([1.2, max(0, 1.2 - SECONDS)], abs=0.001)


async def test_the_format_of_the_beta_api():
    flat = {
        "input_audio_format": "pcm16",
        "input_audio_transcription": {"model": "whisper-1", "language": "en"},
        "turn_detection": None,
    }
    async with gateway_for(ScriptedTranscription(EVERYTHING)) as gateway:
        beta = {"OpenAI-Beta": "realtime=v1"}
        async with gateway.api.realtime.connect(extra_query=QUERY, extra_headers=beta) as connection:
            kinds = [(await connection.recv()).type]
            await connection.send({"type": "transcription_session.update", "session": flat})
            updated = json.loads(await connection.recv_bytes())
            kinds += [event.type for event in await turn(connection)]
    assert kinds[0] == "transcription_session.created"
    assert updated["type"] == "transcription_session.updated"
    assert updated["session"]["input_audio_transcription"]["language"] == "en"
    assert kinds[1:3] == ["input_audio_buffer.committed", "conversation.item.created"]


async def test_cleared_audio_is_discarded():
    server = ScriptedTranscription(EVERYTHING, hangs=True)
    async with gateway_for(server) as gateway, session(gateway) as connection:
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
