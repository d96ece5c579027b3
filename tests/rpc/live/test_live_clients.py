"""Clients of live audio: other modes, ends of utterances and hints; no word is lost, none changes."""

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
from specwhisper.errors import InvalidRequest
from specwhisper.types import SAMPLE_RATE, Mode, TimedHint
from specwhisper.wire.v1 import decoding_pb2
from specwhisper.wire.v1 import transcription_pb2 as pb
from tests.rpc.services import all_free, audio_requests, eventually, refusal
from tests.rpc.speaking import (
    CUT_OFTEN,
    LECTURE,
    Listener,
    config,
    final_text,
    follow,
    letters,
    live_client,
    speaking_draft,
    speaking_pair,
    speaking_target,
    texts_of,
)

pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


async def test_a_stream_continues_in_another_mode_without_a_lost_word(target, draft):
    """Also where a slider that is moved changes it faster than calls can be opened."""
    async with live_client(draft.address, endpointing=CUT_OFTEN) as client:
        listener, at = Listener(client), 0
        for number, mode in enumerate((Mode.TARGET_ONLY, Mode.FULL, Mode.TARGET_ONLY), start=1):
            await follow(client, target, LECTURE, at, number * 6 * SAMPLE_RATE)
            await listener.received(20 * number)
            at = number * 6 * SAMPLE_RATE
            client.change(mode=mode)
        client.change(mode=Mode.FULL)
        await asyncio.sleep(0)
        client.change(mode=Mode.TARGET_ONLY)
        await listener.end(LECTURE[at * 2 :])
        assert client.model.mode is Mode.TARGET_ONLY
        await all_free(target, draft)
    listener.check(final_text(LECTURE, CUT_OFTEN))


@pytest.mark.parametrize("disabled", [False, True])
async def test_the_end_of_an_utterance_makes_its_text_final_at_once(draft, disabled):
    """Also where nothing was said."""
    pcm = talk()
    async with live_client(draft.address, disabled=disabled) as client:
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


async def test_the_end_of_an_utterance_without_audio_has_an_empty_text(draft):
    async with live_client(draft.address) as client:
        listener = Listener(client)
        client.end_utterance()
        await client.send(talk())
        await client.finish()
        client.end_utterance()
        await listener.whole()
        empty, *spoken = listener.segments
        assert (empty.text, empty.end_s, empty.is_utterance_end) == ("", 0.0, True)
        assert texts_of(spoken) == spoken_utterances(talk())


async def transcribed(address: str, hints: dict[float, str], mode: Mode = Mode.FULL):
    """Return the text of a talk, and its statistics."""
    pcm = talk()
    async with live_client(address, mode=mode, step_ms=1_000) as client:
        listener = Listener(client)
        for start_s, text in hints.items():
            client.hint(text, start_s)
        await listener.end(pcm)
        listener.check(spoken_utterances(pcm))
        return client.statistics


def script() -> dict[float, str]:
    """Return what is said in each utterance, by the time at which it begins."""
    texts = spoken_utterances(talk()).values()
    return {begin_s: letters(text) for (begin_s, _), text in zip(SPANS, texts, strict=True)}


async def test_a_script_with_times_saves_forward_passes():
    async with speaking_pair(error_rate=1.0) as (_, draft):
        without = await transcribed(draft.address, {})
        hinted = await transcribed(draft.address, script())
        assert hinted.num_forwards < 0.7 * without.num_forwards
        assert hinted.num_hinted_accepted > without.num_hinted_accepted
        undrafted = await transcribed(draft.address, script(), Mode.TARGET_ONLY)
        assert undrafted.num_hinted_accepted > 0
        misled = {start_s: text[::-1] for start_s, text in script().items()}
        await transcribed(draft.address, misled)


async def test_a_session_that_loses_its_target_sends_its_hints_to_the_next_one():
    pcm, hints = speech(6.0), []
    words = [token for token in words_of(samples_of(pcm)) if token < END]
    async with speaking_target() as first, speaking_target() as second:
        for target in (first, second):
            target.service.metrics.engine.on_message = hints.append
        async with speaking_draft(f"{first.address},{second.address}") as draft:
            async with live_client(draft.address, disabled=True) as client:
                listener = Listener(client)
                client.hint(letters(words), 0.0)
                await client.send(pcm[: len(pcm) // 2])
                await eventually(lambda: any(isinstance(hint, TimedHint) for hint in hints))
                busy = first if first.service.num_sessions else second
                await busy.server.stop(drain_timeout_s=0)
                await listener.end(pcm[len(pcm) // 2 :])
                listener.check({1: words})
    assert [hint for hint in hints if isinstance(hint, TimedHint)] == [TimedHint(0, letters(words))] * 2


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (decoding_pb2.Hint(text="a" * 4_001), "A hint has 4001 bytes"),
        (decoding_pb2.Hint(text="a", start_sample=2**62), "start_sample is 4"),
    ],
)
async def test_a_wrong_hint_is_refused(draft, hint, words):
    request = pb.StreamingRecognizeRequest(hint=hint)
    assert words in str(await refusal(draft, config(), request, *audio_requests(talk())))
    async with live_client(draft.address) as client:
        with pytest.raises(InvalidRequest, match=r"bytes|start_s"):
            client.hint(hint.text, hint.start_sample / 16_000)
