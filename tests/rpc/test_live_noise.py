"""What is not speech becomes no text, and costs next to nothing, whether it is quiet or loud."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from client.live_transcription import LiveTranscription
from client.streaming import StreamingClient
from specwhisper.transcription.live_windows import MAX_TOKENS, MAX_TOKENS_PER_S
from specwhisper.whisper.checkpoint import load_checkpoint
from tests.noises import NOISES, noises
from tests.rpc.services import draft_server, target_server

PIECE_BYTES = 32_000


@pytest.fixture
async def draft_address():
    target, draft = load_checkpoint("demo-target"), load_checkpoint("demo-draft-tiny")
    async with (
        target_server(checkpoint=target) as target_at,
        draft_server(target_at.address, checkpoint=draft) as draft_at,
    ):
        yield draft_at.address


async def heard(stream: StreamingClient, pcm: bytes) -> str:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(pcm), PIECE_BYTES):
            yield pcm[start : start + PIECE_BYTES]

    updates = LiveTranscription(stream, pieces())
    return "".join([segment.text async for update in updates for segment in update.segments])


async def test_thirty_noises_are_no_text(draft_address):
    assert len(NOISES) == 30
    wrong = {}
    for name, pcm in noises():
        async with StreamingClient(draft_address) as stream:
            if text := await heard(stream, pcm):
                wrong[name] = text
    assert not wrong


async def test_where_everything_is_taken_for_speech_nothing_loops(draft_address):
    for name, pcm in list(noises())[::3]:
        async with StreamingClient(draft_address, endpointing=None) as stream:
            text = await heard(stream, pcm)
        seconds = len(pcm) / 32_000
        assert len(text) < 4 * MAX_TOKENS_PER_S * seconds, (name, text)
        statistics = stream.statistics
        most = statistics.num_windows * (MAX_TOKENS + MAX_TOKENS_PER_S * seconds + 1)
        assert statistics.num_committed <= most, (name, statistics)


async def test_silence_takes_no_pass(draft_address):
    async with StreamingClient(draft_address) as stream:
        assert await heard(stream, bytes(60 * 32_000)) == ""
    assert stream.statistics.num_passes == stream.statistics.num_windows == 0
