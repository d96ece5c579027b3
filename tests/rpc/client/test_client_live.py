"""Live transcription by blocking and asynchronous clients."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from experiments.common.models.speech import spoken_utterances, talk
from specwhisper.errors import InvalidAudio, SpecWhisperError, TargetUnavailable
from specwhisper.types import SAMPLE_RATE
from specwhisper_client import blocking, sources
from specwhisper_client.blocking import listen
from specwhisper_client.live_transcription import LiveTranscription
from specwhisper_client.streaming import StreamingClient
from tests.rpc.services import all_free, eventually
from tests.rpc.speaking import PIECE_BYTES, pieces_of, segments_of, speaking_pair, texts_of

pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


async def coming(pcm: bytes) -> AsyncIterator[bytes]:
    for piece in pieces_of(pcm):
        yield piece


@pytest.fixture
def endless() -> Iterator[Iterator[bytes]]:
    """A talk, and then nothing forever: its iterator blocks."""
    is_over = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield from pieces_of(talk())
        is_over.wait()

    yield pieces()
    is_over.set()


async def test_a_program_without_an_event_loop_receives_the_same(monkeypatch):
    monkeypatch.setattr(blocking, "MAX_UNREAD_UPDATES", 1)  # so that the stream waits for its reader
    async with speaking_pair() as (target, draft):
        updates = await asyncio.to_thread(list, listen(pieces_of(talk()), draft.address))
        await all_free(target, draft)
    assert texts_of(segments_of(updates)) == spoken_utterances(talk())


async def test_leaving_the_loop_ends_the_call_although_its_audio_never_does(endless):
    async with speaking_pair() as (target, draft):
        updates = listen(endless, draft.address)

        def leave() -> None:
            for update in updates:
                if update.segments:
                    break
            updates.close()

        await asyncio.to_thread(leave)
        await all_free(target, draft)


async def test_audio_that_fails_ends_the_call_with_its_error():
    def pieces() -> Iterator[bytes]:
        yield from pieces_of(talk()[: 5 * SAMPLE_RATE * 2])
        raise OSError("The microphone was unplugged.")

    async with speaking_pair() as (target, draft):
        with pytest.raises(OSError, match="was unplugged"):
            await asyncio.to_thread(list, listen(pieces(), draft.address))
        await all_free(target, draft)


async def test_a_missing_server_is_reported_although_the_audio_never_ends(endless, unused_tcp_port):
    address = f"127.0.0.1:{unused_tcp_port}"
    with pytest.raises(TargetUnavailable, match="No server answers at"):
        await asyncio.to_thread(list, listen(endless, address, reconnect_s=0.0))


async def test_a_lost_server_is_reported_although_much_audio_is_unsent():
    """The audio exceeds the stream's buffer, so the sender waits; the error does not."""
    async with speaking_pair() as (_, draft):
        async with StreamingClient(draft.address, reconnect_s=0.0) as stream:
            live = LiveTranscription(stream, coming(talk() * 10))
            with pytest.raises(TargetUnavailable):
                async for update in live:
                    if update.segments:
                        await draft.server.stop(drain_timeout_s=0)


async def test_leaving_early_frees_everything_and_closes_the_audio():
    async def silent() -> AsyncIterator[bytes]:
        try:
            yield talk()
            await asyncio.Event().wait()
        finally:
            ended.set()

    ended, before = asyncio.Event(), len(asyncio.all_tasks())
    async with speaking_pair() as (target, draft):
        num_running: list[int] = []
        for _ in range(2):  # the first session also starts what the draft server keeps, such as its watchdog
            ended.clear()
            async with StreamingClient(draft.address) as stream:
                updates = aiter(LiveTranscription(stream, silent()))
                assert await anext(updates)
                await updates.aclose()
                assert ended.is_set()
                await all_free(target, draft)
                if num_running:
                    await eventually(lambda: len(asyncio.all_tasks()) <= num_running[0])
                num_running.append(len(asyncio.all_tasks()))
    await eventually(lambda: len(asyncio.all_tasks()) <= before)


async def test_speech_before_the_stop_becomes_final():
    async def talking() -> AsyncIterator[bytes]:
        yield talk()[: 5 * SAMPLE_RATE * 2]
        while True:  # and never waits for anything
            yield bytes(PIECE_BYTES)

    async with speaking_pair() as (target, draft), StreamingClient(draft.address) as stream:
        live = LiveTranscription(stream, talking())
        with pytest.raises(SpecWhisperError, match="has not ended"):
            _ = live.result
        async for update in live:
            if update.segments:
                live.stop()
        await all_free(target, draft)
        assert len(live.result.segments) == 1
        assert live.result.duration_s == stream.received_s > 1.0
        assert live.result.language == "en"


async def test_a_stop_ends_silence():
    async def silent() -> AsyncIterator[bytes]:
        yield talk()
        await asyncio.Event().wait()

    async with speaking_pair() as (target, draft), StreamingClient(draft.address) as stream:
        live = LiveTranscription(stream, silent(), keeps_segments=False)
        updates = []
        async for update in live:
            updates.append(update)
            live.stop()
        assert texts_of(segments_of(updates)) == spoken_utterances(talk())
        assert live.result.segments == ()
        await all_free(target, draft)


async def test_audio_that_cannot_be_read_is_not_called_empty(tmp_path):
    async with speaking_pair() as (target, draft), StreamingClient(draft.address) as stream:
        with pytest.raises(InvalidAudio, match="does not exist"):
            async for _ in LiveTranscription(stream, sources.file(tmp_path / "no.wav", is_paced=False)):
                pass
        await all_free(target, draft)
