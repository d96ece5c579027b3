"""Wyoming's own client gets the text of a live stream, in chunks and as a whole."""

from collections.abc import AsyncIterator

import pytest
from wyoming.asr import Transcribe, TranscriptStart
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong

from experiments.common.models.speech import SPOKEN, speech
from specwhisper.errors import ServerFull
from specwhisper.wire.codec.terms import decoding_options_from_proto
from specwhisper_wyoming.server import WyomingServer
from tests.rpc.client_scripts import ScriptedTranscription, serving
from tests.rpc.live_scripts import EVERYTHING
from tests.rpc.services import Draft, Target, all_free, eventually
from tests.rpc.speaking import LECTURE, final_text, speaking_pair
from tests.rpc.wyomings import (
    PIECE_BYTES,
    RATE,
    answer,
    chunks_of,
    client_of,
    say,
    send,
    transcript_of,
    wyoming_server,
)

PCM = speech(6.0)
ANSWER = ["transcript-start", "transcript-chunk", "transcript", "transcript-stop"]


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Target, Draft]]:
    async with speaking_pair() as pair:
        yield pair


@pytest.fixture
async def server(pair) -> AsyncIterator[WyomingServer]:
    async with wyoming_server(pair[1].address) as server:
        yield server
    await all_free(*pair)


@pytest.fixture
async def client(server) -> AsyncIterator[AsyncClient]:
    async with client_of(server) as client:
        yield client


def spoken(pcm: bytes) -> str:
    """Return the text that the target alone writes."""
    return SPOKEN.decode([token for text in final_text(pcm, None).values() for token in text]).strip()


async def test_chunks_join_to_the_transcript_which_is_the_text_of_the_target(client):
    await say(client, PCM)
    events = await answer(client)
    assert chunks_of(events) == transcript_of(events) == spoken(PCM)
    assert list(dict.fromkeys(event.type for event in events)) == ANSWER
    assert TranscriptStart.from_event(events[0]).language == "en"
    assert events[-2].data["language"] == "en"


async def test_chunks_arrive_while_the_audio_is_sent(client):
    await send(client, Transcribe(language="en-US"), AudioStart(RATE, 2, 1))
    for start in range(0, len(LECTURE), PIECE_BYTES):
        await send(client, AudioChunk(RATE, 2, 1, LECTURE[start : start + PIECE_BYTES]))
    assert (await client.read_event()).type == "transcript-start"
    assert (await client.read_event()).type == "transcript-chunk"
    await send(client, AudioStop())
    assert transcript_of(await answer(client))


async def test_a_connection_has_several_utterances_also_without_a_request(client):
    await say(client, PCM)
    first = transcript_of(await answer(client))
    await say(client, PCM[: 3 * RATE * 2], Transcribe(language="en"))
    await say(client, PCM)  # before the answer
    second, third = transcript_of(await answer(client)), transcript_of(await answer(client))
    assert first == third == spoken(PCM)
    assert second == spoken(PCM[: 3 * RATE * 2])


async def test_an_utterance_without_audio_is_empty(client):
    await say(client, b"")
    events = await answer(client)
    assert [event.type for event in events] == ["transcript-start", "transcript", "transcript-stop"]
    assert transcript_of(events) == ""
    await send(client, AudioStart(RATE, 2, 1), AudioChunk(RATE, 2, 1, b""), AudioStop())
    assert transcript_of(await answer(client)) == ""


async def test_audio_that_starts_again_drops_what_came_before(client):
    await send(client, AudioStart(RATE, 2, 1), AudioChunk(RATE, 2, 1, speech(3.0, seed=5)))
    await say(client, PCM)
    events = await answer(client)
    while events[0].type != "transcript-start" or len(events) < 4:
        events = events[1:]  # of the dropped utterance
    assert transcript_of(events) == spoken(PCM)


async def test_a_ping_is_answered_also_during_an_utterance_and_other_events_are_ignored(client):
    await send(client, AudioStart(RATE, 2, 1), AudioChunk(RATE, 2, 1, PCM[:PIECE_BYTES]))
    await client.write_event(Event("voice-started", {"timestamp": 3}))
    await send(client, Ping("are you there"))
    while (event := await client.read_event()).type != "pong":
        assert event.type == "transcript-start"
    assert Pong.from_event(event).text == "are you there"


async def test_a_client_that_leaves_frees_its_session(pair, server):
    target, draft = pair
    async with client_of(server) as client:
        await send(client, AudioStart(RATE, 2, 1), AudioChunk(RATE, 2, 1, PCM))
        await eventually(lambda: draft.service.num_sessions == 1)
    await all_free(target, draft)
    await eventually(lambda: server.num_connections == 0)


async def test_the_server_describes_the_target(client):
    await send(client, Describe())
    [program] = Info.from_event(await client.read_event()).asr
    [model] = program.models
    assert model.name == "scripted" and "en" in model.languages
    assert (program.name, program.installed, model.installed) == ("specwhisper", True, True)
    assert program.supports_transcript_streaming and program.requires_external_vad


async def test_an_unavailable_draft_server_is_an_error_and_the_connection_stays(unused_tcp_port):
    async with wyoming_server(f"127.0.0.1:{unused_tcp_port}") as server, client_of(server) as client:
        await send(client, Describe())
        error = Error.from_event(await client.read_event())
        assert error.code == "TargetUnavailable" and str(unused_tcp_port) in error.text
        await send(client, Ping())
        assert Pong.is_type((await client.read_event()).type)


async def test_a_session_that_is_refused_is_an_error_then_the_connection_ends():
    scripted = ScriptedTranscription(responses=(), error=RuntimeError("a bug"))
    async with serving(scripted) as draft, wyoming_server(draft) as server, client_of(server) as client:
        await say(client, PCM)
        *_, event = await answer(client)
        assert Error.from_event(event).code == "SpecWhisperError"
        assert await client.read_event() is None


async def test_a_request_after_a_failed_utterance_needs_no_audio_start():
    scripted = ScriptedTranscription((), error=RuntimeError("a bug"), reads_everything=False)
    async with serving(scripted) as draft, wyoming_server(draft) as server, client_of(server) as client:
        for _ in range(2):
            await send(client, Transcribe(), AudioChunk(RATE, 2, 1, PCM))
            while not Error.is_type((await client.read_event()).type):
                pass


@pytest.mark.parametrize(("asked", "language"), [(None, ""), ("fr", ""), ("de", "de")])
async def test_an_utterance_has_the_servers_padding_and_one_of_its_languages(asked, language):
    scripted, decoding = ScriptedTranscription(EVERYTHING), {"languages": "en, French", "padding": "zero"}
    async with serving(scripted) as draft, wyoming_server(draft, decoding=decoding) as server:
        async with client_of(server) as client:
            for _ in range(2):
                await say(client, PCM, Transcribe(language=asked))
                await answer(client)
                found = decoding_options_from_proto(scripted.config.config.decoding)
                assert (found.language or "", found.padding) == (language, "zero")
                assert found.languages == (() if language else ("en", "fr"))


async def test_a_wrong_request_before_the_answer_does_not_lose_it(client):
    await say(client, PCM)
    await client.write_event(Event("transcribe", {"language": 1}))
    assert transcript_of(await answer(client))
    assert Error.from_event(await client.read_event()).code == "InvalidRequest"
    await say(client, PCM)
    assert transcript_of(await answer(client))


@pytest.mark.parametrize("second", [AudioChunk(8_000, 2, 1, b"1234"), AudioChunk(RATE, 9, 1, b"1234")])
async def test_audio_whose_format_changes_or_does_not_exist_is_an_error(pair, client, second):
    await send(client, AudioStart(RATE, 2, 1), AudioChunk(RATE, 2, 1, PCM[:PIECE_BYTES]), second)
    while (event := await client.read_event()).type != "error":
        pass
    assert Error.from_event(event).code == "InvalidAudio"
    await all_free(*pair)
    await send(client, AudioStop())
    while event is not None:
        event = await client.read_event()


@pytest.mark.parametrize("settings", [{"rate": 100}, {"channels": 200}])
async def test_a_rate_that_is_not_supported_is_an_error(client, settings):
    await say(client, PCM[:800], **settings)
    assert [event.data["code"] for event in await answer(client)] == ["InvalidAudio"]


async def test_bytes_that_are_no_event_end_their_connection_only(server):
    async with client_of(server) as good, client_of(server) as bad:
        await send(good, AudioStart(RATE, 2, 1), AudioChunk(RATE, 2, 1, PCM))
        bad._writer.write(b"GET / HTTP/1.1\r\n")
        assert Error.from_event(await bad.read_event()).code == "InvalidRequest"
        assert await bad.read_event() is None
        await send(good, AudioStop())
        assert transcript_of(await answer(good))


async def test_a_client_that_sends_nothing_is_closed_but_not_while_it_waits_for_its_text():
    scripted = ScriptedTranscription(hangs=True)
    async with serving(scripted) as draft, wyoming_server(draft, idle_timeout_s=1.0) as server:
        async with client_of(server) as waiting:
            await say(waiting, PCM)
            assert [(await waiting.read_event()).type for _ in range(3)] == [*ANSWER[:2], ANSWER[1]]
            async with client_of(server) as idle:
                assert Error.from_event(await idle.read_event()).code == "IdleClient"
                assert await idle.read_event() is None
            await eventually(lambda: server.num_connections == 1)
            await send(waiting, Ping())
            assert (await waiting.read_event()).type == "pong"


async def test_a_client_that_reads_nothing_is_closed(pair):
    async with wyoming_server(pair[1].address, idle_timeout_s=0.5) as server:
        with pytest.raises(ConnectionError):
            async with client_of(server) as client:
                while True:
                    await send(client, Ping("x" * 50_000))
        await eventually(lambda: server.num_connections == 0)


async def test_connections_above_the_limit_are_refused(pair):
    async with wyoming_server(pair[1].address, max_connections=1) as server:
        async with client_of(server) as first:
            await send(first, Ping())
            await first.read_event()
            async with client_of(server) as second:
                assert Error.from_event(await second.read_event()).code == ServerFull.__name__
                assert await second.read_event() is None
        await eventually(lambda: server.num_connections == 0)
        async with client_of(server) as third:
            await send(third, Ping())
            assert (await third.read_event()).type == "pong"


async def test_a_server_that_stops_answers_open_utterances_and_closes_idle_connections(pair):
    async with wyoming_server(pair[1].address, drain_timeout_s=30.0) as server:
        async with client_of(server) as idle, client_of(server) as speaking:
            await send(idle, Ping())
            await idle.read_event()
            await send(speaking, AudioStart(RATE, 2, 1), AudioChunk(RATE, 2, 1, PCM))
            await eventually(lambda: pair[1].service.num_sessions == 1)
            server.stop()
            assert await idle.read_event() is None
            await send(speaking, AudioStop())
            assert transcript_of(await answer(speaking))
            assert await speaking.read_event() is None


async def test_it_listens_at_a_socket(pair, tmp_path):
    path = tmp_path / "asr.sock"
    async with wyoming_server(pair[1].address, uri=f"unix://{path}") as server, client_of(server) as client:
        await say(client, PCM)
        assert transcript_of(await answer(client))
    assert not path.exists()
