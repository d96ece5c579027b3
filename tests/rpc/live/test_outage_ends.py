"""Each outage ends: a right target continues, or the session fails with a reason."""

import asyncio

import pytest

from experiments.common.models.speech import spoken_utterances, talk
from specwhisper.errors import PairMismatch, TargetUnavailable
from specwhisper.types import SAMPLE_RATE
from specwhisper_draft_server.link import resuming
from tests.rpc.outages import BEGUN, breaking_pair, shown_unverified, unverified_client
from tests.rpc.services import (
    PROMPTLY_S,
    all_free,
    eventually,
    is_one_sentence,
)
from tests.rpc.speaking import Listener

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
