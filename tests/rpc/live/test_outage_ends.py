"""Each outage ends: a right target continues, or the session fails with a reason."""

import asyncio

import pytest

from experiments.common.models.speech import spoken_utterances, talk
from specwhisper.errors import InvalidRequest, PairMismatch, TargetUnavailable
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper_draft_server.link import resuming
from tests.rpc.outages import BEGUN, breaking_pair, shown_unverified, unverified_client
from tests.rpc.services import (
    PROMPTLY_S,
    all_free,
    audio_requests,
    count_locate_calls,
    error_of,
    eventually,
    is_one_sentence,
    rest_of,
)
from tests.rpc.speaking import Listener, config

pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


async def test_a_target_of_other_weights_ends_the_session_after_the_time_limit():
    async with breaking_pair(resume_timeout_s=0.05) as (targets, draft), unverified_client(draft) as client:
        listener = Listener(client)
        await client.send(talk()[:BEGUN])
        await listener.received(4)
        await targets.stop()
        target = await targets.start(digest="digest of another one")
        await client.send(talk()[BEGUN:])
        await client.finish()
        with pytest.raises(PairMismatch, match="began on other weights") as refused:
            await listener.whole()
        assert is_one_sentence(refused.value)
        await all_free(target, draft)


async def test_after_a_target_of_other_weights_one_with_the_right_ones_continues(monkeypatch):
    async with breaking_pair() as (targets, draft), unverified_client(draft) as client:
        listener = Listener(client)
        await client.send(talk()[:BEGUN])
        await listener.received(4)
        await targets.stop()
        wrong = await targets.start(digest="digest of another one")
        asked = count_locate_calls(wrong, monkeypatch)
        await client.send(talk()[BEGUN:])
        await client.finish()
        await eventually(lambda: len(asked) >= 3)
        await targets.stop()
        await targets.start()
        await listener.whole()
    listener.check(spoken_utterances(talk()))


async def test_the_wait_for_a_target_is_limited_once_the_audio_has_ended():
    async with breaking_pair(resume_timeout_s=0.02) as (targets, draft):
        async with unverified_client(draft, reconnect_s=0.0) as client:
            listener = Listener(client)
            await client.send(talk()[:BEGUN])
            await listener.received(4)
            await targets.stop()
            await client.finish()
            with pytest.raises(TargetUnavailable, match=r"[Tt]arget 127\.0\.0\.1") as refused:
                await listener.whole()
            assert is_one_sentence(refused.value)
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)


async def test_kept_audio_is_bounded(monkeypatch):
    """A sender that is faster than real time is held back, and loses nothing."""
    monkeypatch.setattr(resuming, "MAX_UNREAD_S", 0.5)
    monkeypatch.setattr(resuming, "MAX_OUTAGE_S", 1.0)
    monkeypatch.setattr(resuming, "monotonic", lambda: 0.0)
    async with breaking_pair() as (targets, draft), unverified_client(draft) as client:
        listener = Listener(client)
        await client.send(talk()[: 6 * SAMPLE_RATE * 2])
        await listener.received(16)
        (audio,) = draft.service.metrics.kept_audio
        await targets.stop()
        sending = asyncio.create_task(client.send(talk()[6 * SAMPLE_RATE * 2 :]))
        await shown_unverified(listener)
        assert audio.num_samples <= 8 * SAMPLE_RATE
        await targets.start()
        await sending
        await listener.end()
    listener.check(spoken_utterances(talk()))


async def test_a_client_that_cancels_in_an_outage_leaves_no_session():
    async with breaking_pair() as (targets, draft):
        for _ in range(2):
            async with unverified_client(draft) as client:
                await client.send(talk()[:BEGUN])
                async for update in client:
                    if update.segments:
                        await targets.stop()
                    if update.is_unverified:
                        break
            target = await targets.start()
            await all_free(target, draft)
        tasks = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}
        assert not [
            name
            for name in tasks
            if "Session" in name or "ResumingTargetStream" in name or "DelayedTargetStream" in name
        ]


async def test_an_invalid_message_in_an_outage_is_reported():
    async with breaking_pair() as (targets, draft):
        call = with_true_status(draft.stub.StreamingRecognize())
        request = config(interim=True)
        request.streaming_config.continue_unverified = True
        await call.write(request)
        for piece in audio_requests(talk()[:BEGUN]):
            await call.write(piece)
        while not (await call.read()).results:
            pass
        await targets.stop()
        while not any(result.is_unverified for result in (await call.read()).results):
            pass
        await call.write(request)
        error = await error_of(rest_of(call))
        assert type(error) is InvalidRequest and "takes audio_content, flac_content, hint" in str(error)
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)


async def test_the_duration_of_an_outage_is_limited(monkeypatch):
    """Its audio is not read, so little of it is kept."""
    monkeypatch.setattr(resuming, "MAX_OUTAGE_S", 0.05)
    async with breaking_pair() as (targets, draft):
        async with unverified_client(draft, mode=Mode.TARGET_ONLY, reconnect_s=0.0) as client:
            listener = Listener(client)
            await client.send(talk()[:BEGUN])
            await listener.received(4)
            await targets.stop()
            with pytest.raises(TargetUnavailable, match=r"No target has taken the session for 0\.05 s"):
                await listener.whole()
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)
