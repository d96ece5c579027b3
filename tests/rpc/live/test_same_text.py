"""Final live text depends on audio and options alone: not on pace, load, drafts or lost servers."""

from contextlib import AsyncExitStack
from random import Random

import pytest

from experiments.common.models.speech import spoken_utterances, talk
from specwhisper.live import EndpointingOptions
from specwhisper.types import SAMPLE_RATE, Mode, Segment
from specwhisper_client.streaming import StreamingClient
from tests.nightly import NIGHTLY, mostly_nightly
from tests.rpc.outages import breaking_pair
from tests.rpc.services import Draft, Target, all_free, draft_server
from tests.rpc.speaking import (
    CUT_OFTEN,
    LECTURE,
    Listener,
    final_text,
    follow,
    live_client,
    speaking_draft,
    speaking_pair,
    speaking_target,
    texts_of,
)

AUDIO: dict[str, tuple[bytes, EndpointingOptions | None]] = {
    "talk": (talk(), EndpointingOptions()),
    "after silence": (talk(((8.0, 10.0), (50.0, 54.0)), 56.0), EndpointingOptions()),
    "lecture": (LECTURE, CUT_OFTEN),
    "without endpointing": (LECTURE, None),
}
# Seconds at which servers are lost.
LOST_AT = {
    "talk": (2, 5, 9, 11, 13),
    "after silence": (9, 30, 52),
    "lecture": (1, 3, 7, 10, 11),
    "without endpointing": (1, 7, 11, 20),
}
KINDS = mostly_nightly(["lecture", "talk", "without endpointing"])
pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


def client_for(draft: Draft, audio: str, **kwargs) -> StreamingClient:
    endpointing = AUDIO[audio][1]
    return live_client(draft.address, endpointing=endpointing, disabled=endpointing is None, **kwargs)


async def send(client: StreamingClient, target: Target, pcm: bytes, pace: str, seed: int = 0) -> None:
    """Send a whole stream at a pace."""
    match pace:
        case "at once":
            await client.send(pcm)
        case "as it is spoken":
            await follow(client, target, pcm)
        case "with stalls":
            random, at = Random(seed), 0
            while at < len(pcm) // 2:
                end = min(at + random.randint(1, 3 * SAMPLE_RATE), len(pcm) // 2)
                await (
                    client.send(pcm[at * 2 : end * 2])
                    if random.random() < 0.5
                    else follow(client, target, pcm, at, end)
                )
                at = end
    await client.finish()


async def transcribed(
    draft: Draft, target: Target, audio: str, pace: str = "at once", seed: int = 0, **kwargs
) -> list[Segment]:
    async with client_for(draft, audio, **kwargs) as client:
        listener = Listener(client)
        await send(client, target, AUDIO[audio][0], pace, seed)
        await listener.whole(within_s=60)
    return listener.segments


def check_whole(segments: list[Segment], audio: str) -> None:
    """Check that each word comes once, in its utterance."""
    pcm, endpointing = AUDIO[audio]
    words = texts_of(segments)
    assert words == final_text(pcm, endpointing)
    if audio in ("talk", "after silence"):
        assert words == spoken_utterances(pcm)
    else:
        assert len(words) == 1 and len(words[1]) == 110, "no word is lost"


UNDISTURBED: dict[str, list[Segment]] = {}  # by audio: it is the same in all tests


async def undisturbed(audio: str) -> list[Segment]:
    """Return the segments of a session that loses no server."""
    if audio not in UNDISTURBED:
        async with speaking_pair() as (target, draft):
            UNDISTURBED[audio] = await transcribed(draft, target, audio)
        check_whole(UNDISTURBED[audio], audio)
    return UNDISTURBED[audio]


@pytest.mark.parametrize("audio", KINDS)
async def test_at_any_pace_with_a_draft_and_without(target, draft, audio):
    """Also with verified text of growing pieces."""
    ways = (
        ("with stalls", {}),
        ("as it is spoken", {"confirm_every_ms": 300}),
        ("at once", {"mode": Mode.TARGET_ONLY}),
    )
    async with draft_server(target.address, drafts=False, mode=Mode.TARGET_ONLY) as without:
        texts = [
            await transcribed(draft, target, audio, pace, seed, **how)
            for seed in range(3 if NIGHTLY else 1)
            for pace, how in ways
        ]
        texts.append(await transcribed(without, target, audio, "as it is spoken"))
    assert texts == [await undisturbed(audio)] * len(texts)


@pytest.mark.parametrize("audio", mostly_nightly(LOST_AT))
@pytest.mark.parametrize("mode", mostly_nightly([Mode.FULL, Mode.TARGET_ONLY]))
async def test_over_targets_that_are_lost_at_any_time(audio, mode):
    pcm, at = AUDIO[audio][0], 0
    async with breaking_pair() as (targets, draft), client_for(draft, audio, mode=mode) as client:
        listener = Listener(client)
        for lost in (seconds * SAMPLE_RATE for seconds in LOST_AT[audio]):
            await follow(client, targets.current, pcm, at, lost)
            await targets.stop()
            await targets.start()
            at = lost
        await listener.end(pcm[at * 2 :], within_s=60)
        assert client.num_reconnects == 0, "the client does not notice"
    assert listener.segments == await undisturbed(audio)


@pytest.mark.parametrize("audio", mostly_nightly(LOST_AT))
async def test_over_draft_servers_that_are_lost_at_any_time(audio):
    """The client continues at its last position, where all later utterances are found again."""
    pcm = AUDIO[audio][0]
    async with speaking_target() as target, AsyncExitStack() as stack:
        draft = await stack.enter_async_context(speaking_draft(target.address))
        client = await stack.enter_async_context(client_for(draft, audio))
        listener, at = Listener(client), 0
        for lost in (seconds * SAMPLE_RATE for seconds in LOST_AT[audio]):
            await follow(client, target, pcm, at, lost)
            await draft.server.stop(drain_timeout_s=0)
            await all_free(target)
            draft = await stack.enter_async_context(speaking_draft(target.address, port=draft.port))
            at = lost
        await listener.end(pcm[at * 2 :], within_s=60)
        assert client.num_reconnects == len(LOST_AT[audio])
    assert listener.segments == await undisturbed(audio)


async def test_with_a_client_that_ends_utterances(target, draft):
    """Wherever it does, also while a draft server is lost; nothing is ended twice."""
    pcm, ends = LECTURE, (5 * SAMPLE_RATE, 11 * SAMPLE_RATE, 17 * SAMPLE_RATE)
    expected = final_text(pcm, CUT_OFTEN, tuple(2 * end for end in ends))
    assert len(expected) == 4
    async with client_for(draft, "lecture") as client:
        listener, at = Listener(client), 0
        for number, end in enumerate(ends):
            if number == 1:
                await follow(client, target, pcm, at, end)
            else:
                await client.send(pcm[at * 2 : end * 2])
            client.end_utterance()
            at = end
        await client.send(pcm[at * 2 : 20 * SAMPLE_RATE * 2])
        await listener.received(sum(map(len, expected.values())) - len(expected[4]))
        await draft.server.stop(drain_timeout_s=0)
        await all_free(target)
        async with speaking_draft(target.address, port=draft.port):
            await listener.end(pcm[20 * SAMPLE_RATE * 2 :], within_s=60)
    assert texts_of(listener.segments) == expected
