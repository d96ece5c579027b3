"""In an outage the draft shows its text, unverified, and no word is lost.

Each outage ends: a right target continues, or the session fails with a reason.
"""

import asyncio

import pytest

from experiments.common.models.speech import SpeechModel, spoken_utterances, talk
from specwhisper.errors import TargetUnavailable
from specwhisper.types import SAMPLE_RATE, Mode
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_draft_server.link import resuming
from tests.nightly import mostly_nightly
from tests.rpc.outages import (
    BEGUN,
    breaking_pair,
    check_unverified,
    decoded,
    shown_unverified,
    unverified_client,
)
from tests.rpc.services import MAX_SESSIONS, PROMPTLY_S, all_free, eventually, is_one_sentence
from tests.rpc.speaking import CUT_OFTEN, LECTURE, Listener, final_text, follow, live_client

pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


async def test_a_draft_without_a_target_shows_everything():
    pcm, begun = LECTURE, 8 * SAMPLE_RATE
    async with breaking_pair(error_rate=0.0) as (targets, draft):
        async with unverified_client(draft, endpointing=CUT_OFTEN) as client:
            listener = Listener(client)
            await follow(client, targets.current, pcm, 0, begun)
            await listener.received(20)
            await targets.stop()
            num_words = listener.num_words
            await client.send(pcm[begun * 2 :])
            await client.finish()
            num_shown = len(decoded(final_text(pcm, CUT_OFTEN)).split())
            await eventually(lambda: len(listener.text.split()) == num_shown)
            assert listener.updates[-1].is_unverified
            assert listener.num_words == num_words, "nothing of it is final"
            await targets.start()
            await listener.whole()
    listener.check(final_text(pcm, CUT_OFTEN))
    check_unverified(listener)


async def test_two_outages():
    pcm = talk()
    third = len(pcm) // 6 * 2
    async with breaking_pair() as (targets, draft), unverified_client(draft) as client:
        listener = Listener(client)
        await client.send(pcm[:third])
        await eventually(lambda: targets.current.service.num_sessions == 1)
        for number, num_words in enumerate((0, 16), start=1):
            await listener.received(num_words)
            since = len(listener.updates)
            await targets.stop()
            await client.send(pcm[number * third : (number + 1) * third])
            await shown_unverified(listener, since)
            target = await targets.start()
        await listener.end()
        await all_free(target, draft)
        assert client.num_reconnects == 0, "the client does not notice"
    listener.check(spoken_utterances(pcm))
    check_unverified(listener)


async def test_in_an_outage_a_session_may_begin_and_change_its_settings():
    """Each takes another call, while no target can describe itself."""
    pcm = talk()
    async with breaking_pair() as (targets, draft), unverified_client(draft) as client:
        await draft.stub.GetModel(pb.GetModelRequest())
        await targets.stop()
        listener = Listener(client)
        await client.send(pcm[:BEGUN])
        await shown_unverified(listener)
        since = len(listener.updates)
        client.change(mode=Mode.FULL)
        await shown_unverified(listener, since)
        await client.send(pcm[BEGUN:])
        await client.finish()
        await targets.start()
        await listener.whole()
        assert client.num_reconnects == 0
    listener.check(spoken_utterances(pcm))


@pytest.mark.parametrize("how", [{"mode": Mode.TARGET_ONLY, "continue_unverified": True}, {}])
async def test_without_a_draft_or_without_the_option_the_session_waits_for_a_target(how):
    """Without the option it fails after the time limit; until then the draft shows its text."""
    pcm = talk()
    async with breaking_pair() as (targets, draft), live_client(draft.address, **how) as client:
        listener = Listener(client)
        await client.send(pcm[: len(pcm) // 2])
        await listener.received(8)
        await targets.stop()
        await client.send(pcm[len(pcm) // 2 :])
        if not how:
            await shown_unverified(listener)
        await client.finish()
        await targets.start()
        await listener.whole()
        assert client.num_reconnects == 0, "the draft server keeps the audio"
    listener.check(spoken_utterances(pcm))


@pytest.mark.parametrize("mode", mostly_nightly([Mode.TARGET_ONLY, Mode.FULL]))
async def test_audio_is_kept_only_while_there_is_no_target(mode, monkeypatch):
    """In an outage a sender is not held back; then it is, and the text catches up."""
    monkeypatch.setattr(resuming, "MAX_UNREAD_S", 1.0)
    pcm = LECTURE
    async with breaking_pair() as (targets, draft), unverified_client(draft, mode=mode) as client:
        listener = Listener(client)
        await client.send(pcm[:BEGUN])
        await eventually(lambda: targets.current.service.num_sessions == 1)
        await targets.stop()
        await client.send(pcm[BEGUN:])
        (audio,) = draft.service.metrics.kept_audio
        await eventually(lambda: audio.num_samples > 20 * SAMPLE_RATE)
        await targets.start()
        await listener.end()
    listener.check(final_text(pcm))


class BrokenDraft(SpeechModel):
    """Works until ``is_broken`` is set."""

    is_broken = False

    def score(self, rows):
        if self.is_broken:
            raise RuntimeError("out of memory")
        return super().score(rows)


async def test_where_a_draft_has_failed_the_target_shows_text():
    """It opens the session anew, and writes text of a piece that grows."""
    pcm, model = LECTURE, BrokenDraft(MAX_SESSIONS)
    async with breaking_pair(model=model) as (targets, draft), unverified_client(draft) as client:
        listener = Listener(client)
        await follow(client, targets.current, pcm, 0, 2 * SAMPLE_RATE)
        model.is_broken = True
        await client.send(pcm[2 * SAMPLE_RATE * 2 : 4 * SAMPLE_RATE * 2])
        await eventually(lambda: any(update.verified_text for update in listener.updates))
        assert client.model.mode is Mode.TARGET_ONLY
        assert not listener.segments
        await listener.end(pcm[4 * SAMPLE_RATE * 2 :])
    listener.check(final_text(pcm))


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
        tasks = {repr(task.get_coro()) for task in asyncio.all_tasks()}  # not all have names
        assert not [
            name
            for name in tasks
            if "Session" in name or "ResumingTargetStream" in name or "DelayedTargetStream" in name
        ]
