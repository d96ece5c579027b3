"""A link that carries less than audio in real time: the text is complete, and nothing is sent twice."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from experiments.common.servers.proxy import Proxy
from specwhisper.options import DecodingOptions
from specwhisper.wire.pacing import START_BYTES
from specwhisper_client.api import TranscriptionClient
from tests.rpc.services import RATE, draft_server, recording, target_alone, target_server, wav

BYTES_PER_S = 20_000
LENGTH_S = 1.5
NUM_BYTES = int(2 * RATE * LENGTH_S)


@pytest.mark.parametrize("hop", ["to the draft server", "to the target"])
async def test_a_recording_over_a_slow_link(tmp_path, hop):
    path = wav(tmp_path / "audio.wav", recording(LENGTH_S))
    held: list[int] = []
    async with AsyncExitStack() as stack:
        slow = await stack.enter_async_context(Proxy.listening())
        target = await stack.enter_async_context(target_server())
        is_first = hop == "to the draft server"
        draft = await stack.enter_async_context(draft_server(target.address if is_first else slow.address))
        slow.upstream = draft.address if is_first else target.address
        client = TranscriptionClient(slow.address if is_first else draft.address)
        await stack.enter_async_context(client)
        await client.get_model()  # connects
        num_connections, slow.bytes_per_s = slow.num_accepted, BYTES_PER_S
        slow.bytes_left = round(1.3 * NUM_BYTES)

        async def watch() -> None:
            while True:
                held.append(slow.num_held)
                await asyncio.sleep(0.05)

        watching = asyncio.create_task(watch())
        transcript = await client.transcribe_file(path, DecodingOptions(language="en"))
        watching.cancel()
        assert not slow.num_reset, "at most a third of the audio is sent twice"
    assert [s.tokens for s in transcript.segments] == [s.tokens for s in target_alone(LENGTH_S).segments]
    assert slow.num_accepted <= num_connections + 1  # a call may open another connection, and none is lost
    assert max(held) <= 2 * START_BYTES
    assert max(held[len(held) // 2 :]) <= START_BYTES // 2  # by then the link was measured
