"""Audio without speech becomes no text at almost no cost, quiet or loud."""

import re
from collections.abc import AsyncIterator
from itertools import islice

import pytest

from experiments.common.inline_pair import InlinePair
from specwhisper.live import LiveOptions
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.transcription.live_windows import max_new_tokens
from specwhisper.transcription.windows import text_compression_ratio
from specwhisper_client.live_transcription import LiveTranscription
from specwhisper_client.streaming import StreamingClient
from tests.nightly import NIGHTLY
from tests.noises import noises
from tests.rpc.services import Target, draft_server, target_server
from tests.rpc.speaking import Listener, follow

PIECE_BYTES = 32_000
REPEATED = re.compile(r"(.{1,30})\1{4}")  # people say "no" four times
MAX_COMPRESSION_RATIO = 2.4  # Whisper's own measure
STEP_MS = 2_000
LOOPING = ("hum of 50 Hz",)  # " Oneononononon ...", also where the target decodes them alone


@pytest.fixture
async def pair():
    target, draft = load_checkpoint("demo-target"), load_checkpoint("demo-draft-tiny")
    async with (
        target_server(checkpoint=target) as target_at,
        draft_server(target_at.address, checkpoint=draft) as draft_at,
    ):
        yield target_at, draft_at


async def transcribed(stream: StreamingClient, pcm: bytes) -> str:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(pcm), PIECE_BYTES):
            yield pcm[start : start + PIECE_BYTES]

    updates = LiveTranscription(stream, pieces())
    return "".join([segment.text async for update in updates for segment in update.segments])


async def test_noises_have_no_text(pair):
    """By day every third one."""
    wrong = {}
    for name, pcm in islice(noises(), 0, None, 1 if NIGHTLY else 3):
        async with StreamingClient(pair[1].address) as stream:
            if text := await transcribed(stream, pcm):
                wrong[name] = text
    assert not wrong


async def transcribed_as_spoken(target: Target, address: str, pcm: bytes) -> Listener:
    """Transcribe audio as it is spoken, also what grows."""
    live = LiveOptions(step_ms=STEP_MS, confirm_every_ms=STEP_MS)
    async with StreamingClient(address, live=live, endpointing=None) as stream:
        listener = Listener(stream)
        await follow(stream, target, pcm)
        await stream.finish()
        await listener.whole(within_s=60)
        most = stream.statistics.num_windows * max_new_tokens(len(pcm) // 2)
        assert stream.statistics.num_committed <= most
    return listener


@pytest.mark.nightly
async def test_without_endpointing_no_text_is_repeated(pair):
    """Each hypothesis reuses the last one's text."""
    target, draft = pair
    alone = WhisperModel(load_checkpoint("demo-target"), 1)

    for name, pcm in noises():
        listener = await transcribed_as_spoken(target, draft.address, pcm)
        segments = listener.segments
        text = "".join(segment.text for segment in segments)
        if name in LOOPING:
            assert text.strip() == InlinePair(alone).transcribe([pcm])[0].text, "it is the target's own text"
            continue
        for shown in (text, *(update.text for update in listener.updates)):
            assert not REPEATED.search(shown), (name, shown)
        assert all(segment.compression_ratio < MAX_COMPRESSION_RATIO for segment in segments), (name, text)
        assert text_compression_ratio(text) < MAX_COMPRESSION_RATIO, (name, text)
