"""Latency injection delays messages and changes no text; it must be allowed."""

import pytest

from experiments.common.models.speech import spoken_utterances, talk
from specwhisper.errors import InvalidRequest
from specwhisper.types import LIVE_MODES
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.requests import MAX_ADDED_LATENCY_MS
from tests.rpc.network import cut_network
from tests.rpc.services import all_free, audio_requests, check_error, refusal
from tests.rpc.speaking import Listener, config, live_client, speaking_draft, speaking_pair, speaking_target

ADDED_MS = 40
SHORT = talk(((0.2, 1.6),), 2.5)
pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


@pytest.mark.parametrize("mode", LIVE_MODES)
async def test_the_round_trip_grows_and_the_text_stays_even_if_the_target_is_lost(mode):
    async with (
        speaking_target() as target,
        cut_network(target.address, [4]) as (network, cutting),
        speaking_draft(network.address, allow_latency_injection=True) as draft,
    ):
        assert (await draft.stub.GetModel(pb.GetModelRequest())).allows_latency_injection
        async with live_client(draft.address, mode=mode, added_latency_ms=ADDED_MS) as client:
            listener = Listener(client)
            await listener.end(talk())
        listener.check(spoken_utterances(talk()))
        assert client.statistics.min_round_trip_ns > ADDED_MS * 1e6
        assert cutting.num_cut == 1 and client.num_reconnects == 0
        await all_free(target, draft)


async def test_a_client_that_leaves_frees_a_delayed_session():
    async with speaking_pair(allow_latency_injection=True) as (target, draft):
        async with live_client(draft.address, added_latency_ms=MAX_ADDED_LATENCY_MS) as client:
            await client.send(SHORT)
            async for update in client:
                if update.speech is not None:
                    break
        await all_free(target, draft)


@pytest.mark.parametrize(
    ("added_latency_ms", "is_allowed", "words"),
    [
        (MAX_ADDED_LATENCY_MS + 1, True, "added_latency_ms"),
        (ADDED_MS, False, "start the draft server with --allow-latency-injection"),
    ],
    ids=["out of bounds", "without the server's flag"],
)
async def test_latency_is_refused(added_latency_ms, is_allowed, words):
    request = config()
    request.streaming_config.added_latency_ms = added_latency_ms
    async with speaking_pair(allow_latency_injection=is_allowed) as (target, draft):
        error = await refusal(draft, request, *audio_requests(SHORT))
        check_error(error, InvalidRequest, words)
        await all_free(target, draft)
