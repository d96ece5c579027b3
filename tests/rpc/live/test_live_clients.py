"""Clients of live audio: other servers, other modes, and no word lost."""

from __future__ import annotations

import asyncio

import pytest

from experiments.common.models.scripted import END
from experiments.common.models.speech import (
    SPANS,
    samples_of,
    speech,
    spoken_utterances,
    talk,
    words_of,
)
from specwhisper.types import SAMPLE_RATE, Mode
from tests.nightly import mostly_nightly
from tests.rpc.services import (
    all_free,
)
from tests.rpc.speaking import (
    Listener,
    live_client,
    speaking_draft,
    speaking_pair,
    speaking_target,
)

pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


async def test_a_client_receives_the_servers_text():
    async with speaking_pair() as (target, draft), live_client(draft.address) as client:
        listener = Listener(client)
        await client.send(talk())
        await client.finish()
        await listener.whole()
        listener.check(spoken_utterances(talk()))
        assert client.num_reconnects == 0
        await all_free(target, draft)


@pytest.mark.parametrize("disabled", [False, True])
@pytest.mark.parametrize("trim_ms", mostly_nightly([15_000, 2_000]))
async def test_another_draft_server_continues_where_one_was_stopped(disabled, trim_ms):
    """Final words do not depend on steps: the text equals an unbroken stream's."""
    pcm = talk()
    expected = spoken_utterances(pcm)
    if disabled:
        pcm = pcm[round(SPANS[2][0] * SAMPLE_RATE) * 2 : round(SPANS[2][1] * SAMPLE_RATE) * 2]
        expected = {1: [token for token in words_of(samples_of(pcm)) if token < END]}
    half = len(pcm) * 5 // 8 // 2
    async with speaking_target() as target:
        async with speaking_draft(target.address) as first:
            address = first.address
            client = live_client(address, trim_ms=trim_ms, disabled=disabled)
            listener = Listener(client)
            if disabled:
                await listener.follow(client, pcm, 0, half)
            else:
                await client.send(pcm[: half * 2])
            await listener.received(8)
        assert 8 <= listener.num_words < sum(map(len, expected.values()))
        await client.send(pcm[half * 2 :])
        await client.finish()
        async with speaking_draft(target.address, port=int(address.rpartition(":")[2])) as second, client:
            await listener.whole()
            await all_free(target, second)
    listener.check(expected)
    assert client.num_reconnects >= 1


async def test_a_session_waits_for_a_target_that_was_stopped():
    pcm = talk()
    async with speaking_target() as first:
        async with speaking_draft(first.address) as draft, live_client(draft.address) as client:
            listener = Listener(client)
            await client.send(pcm[: len(pcm) // 2])
            await listener.received(8)
            await first.server.stop(drain_timeout_s=0)
            async with speaking_target(port=int(first.address.rpartition(":")[2])) as second:
                await client.send(pcm[len(pcm) // 2 :])
                await client.finish()
                await listener.whole()
                await all_free(second, draft)
            assert client.num_reconnects == 0, "the client does not notice"
    listener.check(spoken_utterances(pcm))


async def test_a_stream_continues_in_another_mode_without_a_lost_word():
    pcm = speech(8.0)
    async with speaking_pair() as (target, draft):
        async with live_client(draft.address, mode=Mode.SYNC, disabled=True) as client:
            listener, at = Listener(client), 0
            for number, mode in enumerate((Mode.PIPELINED, Mode.FULL, Mode.TARGET_ONLY), start=1):
                await listener.follow(client, pcm, at, number * 2 * SAMPLE_RATE)
                await listener.received(6 * number - 2)
                at = number * 2 * SAMPLE_RATE
                client.change(mode=mode, gamma=3)
            await client.send(pcm[at * 2 :])
            await client.finish()
            await listener.whole()
            assert client.model.mode is Mode.TARGET_ONLY
            await all_free(target, draft)
    listener.check({1: [token for token in words_of(samples_of(pcm)) if token < END]})


async def test_a_client_that_cancels_frees_its_session():
    async with speaking_pair() as (target, draft):
        async with live_client(draft.address) as client:
            await client.send(talk())
            async for update in client:
                if update.segments:
                    break
        await all_free(target, draft)


async def test_quick_changes_of_settings_open_one_call():
    """A slider that is moved changes settings faster than calls can be opened."""
    pcm = speech(6.0)
    async with speaking_pair() as (target, draft):
        async with live_client(draft.address, mode=Mode.SYNC, disabled=True) as client:
            listener = Listener(client)
            await listener.follow(client, pcm, 0, 2 * SAMPLE_RATE)
            await listener.received(4)
            client.change(mode=Mode.PIPELINED)
            client.change(mode=Mode.FULL, gamma=3)
            await asyncio.sleep(0)
            client.change(mode=Mode.TARGET_ONLY)
            await client.send(pcm[2 * SAMPLE_RATE * 2 :])
            await client.finish()
            await listener.whole()
            assert client.model.mode is Mode.TARGET_ONLY
            await all_free(target, draft)
    listener.check({1: [token for token in words_of(samples_of(pcm)) if token < END]})
