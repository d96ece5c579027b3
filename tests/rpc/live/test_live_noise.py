"""Audio without speech becomes no text, quiet or loud."""

from collections.abc import AsyncIterator
from itertools import islice

from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper_client.live_transcription import LiveTranscription
from specwhisper_client.streaming import StreamingClient
from tests.nightly import NIGHTLY
from tests.noises import noises
from tests.rpc.services import draft_server, target_server

PIECE_BYTES = 32_000


async def transcribed(stream: StreamingClient, pcm: bytes) -> str:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(pcm), PIECE_BYTES):
            yield pcm[start : start + PIECE_BYTES]

    updates = LiveTranscription(stream, pieces())
    return "".join([segment.text async for update in updates for segment in update.segments])


async def test_noises_have_no_text():
    """By day every third one."""
    wrong = {}
    async with (
        target_server(checkpoint=load_checkpoint("demo-target")) as target,
        draft_server(target.address, checkpoint=load_checkpoint("demo-draft-tiny")) as draft,
    ):
        for name, pcm in islice(noises(), 0, None, 1 if NIGHTLY else 3):
            async with StreamingClient(draft.address) as stream:
                if text := await transcribed(stream, pcm):
                    wrong[name] = text
    assert not wrong
