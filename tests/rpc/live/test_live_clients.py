"""Clients of live audio: other servers, other modes, and no word lost."""

import asyncio

import pytest

from experiments.common.models.speech import spoken_utterances, talk
from specwhisper.types import SAMPLE_RATE, Mode
from tests.rpc.services import all_free, eventually
from tests.rpc.speaking import (
    CUT_OFTEN,
    LECTURE,
    Listener,
    final_text,
    follow,
    live_client,
    speaking_pair,
    texts_of,
)

pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


async def test_a_stream_continues_in_another_mode_without_a_lost_word():
    async with speaking_pair() as (target, draft):
        async with live_client(draft.address, endpointing=CUT_OFTEN) as client:
            listener, at = Listener(client), 0
            for number, mode in enumerate((Mode.TARGET_ONLY, Mode.FULL, Mode.TARGET_ONLY), start=1):
                await follow(client, target, LECTURE, at, number * 6 * SAMPLE_RATE)
                await listener.received(20 * number)
                at = number * 6 * SAMPLE_RATE
                client.change(mode=mode)
            await listener.end(LECTURE[at * 2 :])
            assert client.model.mode is Mode.TARGET_ONLY
            await all_free(target, draft)
    listener.check(final_text(LECTURE, CUT_OFTEN))


async def test_quick_changes_of_settings_open_one_call():
    """A slider that is moved changes settings faster than calls can be opened."""
    async with speaking_pair() as (target, draft):
        async with live_client(draft.address, endpointing=CUT_OFTEN) as client:
            listener = Listener(client)
            await follow(client, target, LECTURE, 0, 6 * SAMPLE_RATE)
            await listener.received(20)
            client.change(mode=Mode.TARGET_ONLY)
            client.change(mode=Mode.FULL)
            await asyncio.sleep(0)
            client.change(mode=Mode.TARGET_ONLY)
            await listener.end(LECTURE[6 * SAMPLE_RATE * 2 :])
            assert client.model.mode is Mode.TARGET_ONLY
            await all_free(target, draft)
    listener.check(final_text(LECTURE, CUT_OFTEN))


@pytest.mark.parametrize("disabled", [False, True])
async def test_the_end_of_an_utterance_makes_its_text_final_at_once(disabled):
    """Also where nothing was said."""
    pcm = talk()
    async with speaking_pair() as (target, draft), live_client(draft.address, disabled=disabled) as client:
        listener = Listener(client)
        await client.send(pcm[: 9 * SAMPLE_RATE * 2])
        client.end_utterance()
        await eventually(lambda: listener.num_ended == (1 if disabled else 3))
        words = listener.num_words
        assert words == sum(map(len, final_text(pcm[: 9 * SAMPLE_RATE * 2]).values()))
        await client.send(bytes(2 * SAMPLE_RATE))
        client.end_utterance()
        await eventually(lambda: listener.num_ended == (2 if disabled else 4))
        assert listener.segments[-1].text == ""
        await listener.end()
        assert listener.num_words == words
        await all_free(target, draft)


async def test_the_end_of_an_utterance_without_audio_has_an_empty_text():
    async with speaking_pair() as (target, draft), live_client(draft.address) as client:
        listener = Listener(client)
        client.end_utterance()
        await client.send(talk())
        await client.finish()
        client.end_utterance()
        await listener.whole()
        empty, *spoken = listener.segments
        assert (empty.text, empty.end_s, empty.is_utterance_end) == ("", 0.0, True)
        assert texts_of(spoken) == spoken_utterances(talk())
        await all_free(target, draft)
