"""In an outage the draft continues with unverified text, and no word is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import grpc.aio
import pytest

from experiments.common.models.scripted import END
from experiments.common.models.speech import (
    SPOKEN,
    SPOKEN_MULTILINGUAL,
    SpeechModel,
    samples_of,
    speech,
    spoken_utterances,
    talk,
    words_of,
)
from specwhisper.audio import kept
from specwhisper.errors import InvalidAudio, InvalidRequest, PairMismatch, ServerFull, TargetUnavailable
from specwhisper.live import LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import with_true_status
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.live_windows import LiveWindows
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.types import (
    SAMPLE_RATE,
    AudioChunk,
    Candidates,
    Commit,
    Limits,
    Mode,
    Segment,
    VoiceEvent,
    Window,
    WindowOpened,
    Word,
)
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.streaming import StreamingClient
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.sessions import live_failover
from specwhisper_draft_server.sessions.draft_only import MergedTranscript, UnverifiedText
from specwhisper_draft_server.sessions.live_failover import LiveFailover
from specwhisper_draft_server.sessions.session import Session, SessionRequest
from tests.live import BEGIN, ENDED, mark
from tests.rpc.services import (
    MAX_SESSIONS,
    PROMPTLY_S,
    Draft,
    Target,
    all_free,
    audio_requests,
    count_locate_calls,
    error_of,
    eventually,
    is_one_sentence,
)
from tests.rpc.speaking import Listener, config, live_client, speaking_draft, speaking_target, texts_of

BEGUN = 10 * SAMPLE_RATE * 2  # bytes; within the third utterance
LIVE = DecodingOptions(live=LiveOptions())
LOST = TargetUnavailable("It is gone.")
MODES = (Mode.SYNC, Mode.PIPELINED, Mode.FULL)
pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


class Targets:
    """Runs one target after another at one address."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._port = 0
        self.current: Target | None = None

    async def start(self, **kwargs) -> Target:
        """Start a target, at the address of the first one."""
        target = await self._stack.enter_async_context(speaking_target(port=self._port, **kwargs))
        self._port, self.current = int(target.address.rpartition(":")[2]), target
        return target

    async def stop(self) -> None:
        """Stop the target that runs, at once."""
        assert self.current is not None
        await self.current.server.stop(drain_timeout_s=0)


@asynccontextmanager
async def breaking_pair(**kwargs) -> AsyncIterator[tuple[Targets, Draft]]:
    async with AsyncExitStack() as stack:
        targets = Targets(stack)
        first = await targets.start()
        # Calls that wait for the target fail soon, so the session often continues draft-only.
        settings = {"connect_timeout_s": 0.3} | kwargs
        yield targets, await stack.enter_async_context(speaking_draft(first.address, **settings))


def unverified_client(draft: Draft, **kwargs) -> StreamingClient:
    return live_client(draft.address, continue_unverified=True, **kwargs)


def decoded(tokens: list[int]) -> str:
    return SPOKEN.decode(tokens)


def words(pcm: bytes) -> list[int]:
    return [token for token in words_of(samples_of(pcm)) if token < END]


def shown(listener: Listener) -> str:
    """Return all text that a user sees."""
    return "".join([*(segment.text for segment in listener.segments), listener.updates[-1].draft_text])


def unverified(listener: Listener, since: int = 0) -> list[str]:
    """Return the text that was shown without a target."""
    return [update.draft_text for update in listener.updates[since:] if update.is_unverified]


async def shown_unverified(listener: Listener, since: int = 0) -> None:
    """Wait until unverified text is shown."""
    await eventually(lambda: any(text.strip() for text in unverified(listener, since)))


def check_unverified(listener: Listener) -> None:
    """Check that only draft text is marked, and that speech events are in order."""
    for update in listener.updates:
        if update.is_unverified:
            assert update.draft_text
    events = [update.speech for update in listener.updates if update.speech is not None]
    assert events[::2] == [VoiceEvent.BEGIN] * len(events[::2])
    assert events[1::2] == [VoiceEvent.END] * len(events[1::2])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trim_ms", [2_000, 15_000])
async def test_speech_in_an_outage_is_shown_then_verified(mode, trim_ms):
    pcm = talk()
    half = len(pcm) * 5 // 8
    async with (
        breaking_pair() as (targets, draft),
        unverified_client(draft, mode=mode, trim_ms=trim_ms) as client,
    ):
        listener = Listener(client)
        await client.send(pcm[:half])
        await listener.received(8)
        await targets.stop()
        await client.send(pcm[half:])
        await shown_unverified(listener)
        num_words = listener.num_words
        await client.finish()
        assert listener.num_words == num_words, "no text becomes final without a target"
        target = await targets.start()
        await listener.whole()
        await all_free(target, draft)
        assert client.num_reconnects == 0, "the client does not notice"
    listener.check(spoken_utterances(pcm))
    check_unverified(listener)


@pytest.mark.parametrize("gamma", [None, 3])
@pytest.mark.parametrize("mode", MODES)
async def test_a_draft_without_a_target_transcribes_everything(mode, gamma):
    """It does not pause, as it may with a target: no target continues in a pause."""
    pcm = speech(12.0)
    begun = 3 * SAMPLE_RATE
    async with breaking_pair(error_rate=0.0) as (targets, draft):
        async with unverified_client(draft, mode=mode, gamma=gamma, disabled=True) as client:
            listener = Listener(client)
            await listener.follow(client, pcm, 0, begun)
            await listener.received(6)
            await targets.stop()
            await client.send(pcm[begun * 2 :])
            whole = decoded(words(pcm[: -SAMPLE_RATE * 2]))
            await eventually(lambda: shown(listener).startswith(whole))
            assert listener.updates[-1].is_unverified
            assert listener.num_words <= len(words(pcm[: begun * 2]))
            await client.finish()
            await targets.start()
            await listener.whole()
    listener.check({1: words(pcm)})
    check_unverified(listener)


async def test_two_outages():
    pcm = talk()
    third = len(pcm) // 6 * 2
    async with breaking_pair() as (targets, draft), unverified_client(draft) as client:
        listener = Listener(client)
        await client.send(pcm[:third])
        for number in (1, 2):
            await listener.received(4 * number)
            since = len(listener.updates)
            await targets.stop()
            await client.send(pcm[number * third : (number + 1) * third])
            await shown_unverified(listener, since)
            await targets.start()
        await client.finish()
        await listener.whole()
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
        client.change(mode=Mode.SYNC)
        await shown_unverified(listener, since)
        await client.send(pcm[BEGUN:])
        await client.finish()
        await targets.start()
        await listener.whole()
        assert client.num_reconnects == 0
    listener.check(spoken_utterances(pcm))


async def test_a_target_that_is_lost_at_once_loses_no_word():
    """Its sessions end as they begin, several times."""
    async with breaking_pair() as (targets, draft), unverified_client(draft) as client:
        listener = Listener(client)
        await eventually(lambda: draft.service.num_sessions == 1)
        for _ in range(3):
            await targets.stop()
            await targets.start()
        await client.send(talk())
        await client.finish()
        await listener.whole()
    listener.check(spoken_utterances(talk()))


async def test_a_target_may_return_after_the_audio_has_ended():
    pcm = talk()
    async with breaking_pair(error_rate=0.0) as (targets, draft), unverified_client(draft) as client:
        listener = Listener(client)
        await client.send(pcm[:BEGUN])
        await listener.received(8)
        await targets.stop()
        await client.send(pcm[BEGUN:])
        await client.finish()
        whole = decoded([token for text in spoken_utterances(pcm).values() for token in text])
        await eventually(lambda: shown(listener) == whole)
        assert listener.updates[-1].is_unverified
        target = await targets.start()
        await listener.whole()
        await all_free(target, draft)
    listener.check(spoken_utterances(pcm))


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
            with pytest.raises(TargetUnavailable, match=r"none has taken the session in 0\.02 s") as refused:
                await listener.whole()
            assert is_one_sentence(refused.value)
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)


async def test_kept_audio_is_bounded(monkeypatch):
    monkeypatch.setattr(live_failover, "MAX_OUTAGE_S", 1.0)
    async with breaking_pair() as (targets, draft):
        async with unverified_client(draft, reconnect_s=0.0) as client:
            listener = Listener(client)
            await client.send(talk()[: 4 * SAMPLE_RATE * 2])
            await listener.received(4)
            await targets.stop()
            await client.send(talk()[4 * SAMPLE_RATE * 2 :])
            with pytest.raises(TargetUnavailable, match="was lost for longer than 1 s") as refused:
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
        tasks = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}
        assert not [name for name in tasks if "LiveFailover" in name or "DelayedTargetStream" in name]


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
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            while await call.read() is not grpc.aio.EOF:
                pass
        error = error_from_rpc(ended.value, "the server")
        assert type(error) is InvalidRequest and "takes audio_content only" in str(error)
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)


async def test_audio_that_is_decoded_again_counts_once():
    async with breaking_pair() as (targets, draft):
        call = with_true_status(draft.stub.StreamingRecognize())
        request = config(interim=True, live={"step_ms": 300})
        request.streaming_config.continue_unverified = True
        responses = []

        async def read_until(condition) -> None:
            while (response := await call.read()) is not grpc.aio.EOF:
                responses.append(response)
                if condition(response):
                    return

        await call.write(request)
        for piece in audio_requests(talk()[:BEGUN]):
            await call.write(piece)
        await read_until(lambda response: response.audio_received.seconds >= 9)
        await targets.stop()
        await read_until(lambda response: any(result.is_unverified for result in response.results))
        await targets.start()
        for piece in audio_requests(talk()[BEGUN:]):
            await call.write(piece)
        await call.done_writing()
        await read_until(lambda _: False)
    received = [r.audio_received.ToNanoseconds() for r in responses if r.HasField("audio_received")]
    assert received == sorted(received)
    assert texts_of(r for response in responses for r in response.results if r.is_final) == spoken_utterances(
        talk()
    )


@pytest.mark.parametrize(
    ("rest", "kind", "sentence"),
    [
        ([config()], InvalidRequest, "takes audio_content only"),
        ([*audio_requests(talk()), config()], InvalidRequest, "takes audio_content only"),
        ([pb.StreamingRecognizeRequest(audio_content=bytes(3))], InvalidAudio, "ends within a frame"),
        ([], InvalidAudio, "recording is empty"),
    ],
)
async def test_invalid_streams_are_refused_with_a_reason(rest, kind, sentence):
    request = config()
    request.streaming_config.continue_unverified = True
    async with breaking_pair() as (targets, draft):
        error = await error_of(with_true_status(draft.stub.StreamingRecognize(iter([request, *rest]))))
        assert type(error) is kind and sentence in str(error)
        await all_free(targets.current, draft)


class BrokenDraft(SpeechModel):
    """Works until ``is_broken`` is set."""

    is_broken = False

    def score(self, rows):
        if self.is_broken:
            raise RuntimeError("out of memory")
        return super().score(rows)


@pytest.mark.parametrize("mode", MODES)
async def test_a_draft_that_fails_in_an_outage_costs_no_word(mode):
    pcm, model = talk(), BrokenDraft(MAX_SESSIONS)
    async with breaking_pair(model=model) as (targets, draft), unverified_client(draft, mode=mode) as client:
        listener = Listener(client)
        await client.send(pcm[:BEGUN])
        await listener.received(8)
        await targets.stop()
        await shown_unverified(listener)
        model.is_broken = True
        await client.send(pcm[BEGUN:])
        await client.finish()
        target = await targets.start()
        await listener.whole()
        await all_free(target, draft)
    listener.check(spoken_utterances(pcm))


async def test_without_a_draft_the_session_waits_for_a_target():
    pcm = talk()
    async with breaking_pair() as (targets, draft):
        async with unverified_client(draft, mode=Mode.TARGET_ONLY) as client:
            listener = Listener(client)
            await client.send(pcm[: len(pcm) // 2])
            await listener.received(8)
            await targets.stop()
            await client.send(pcm[len(pcm) // 2 :])
            await targets.start()
            await client.finish()
            await listener.whole()
        assert client.num_reconnects == 0
    listener.check(spoken_utterances(pcm))


async def test_without_the_option_no_text_is_unverified():
    pcm = talk()
    async with breaking_pair() as (targets, draft), live_client(draft.address) as client:
        listener = Listener(client)
        await client.send(pcm[: len(pcm) // 2])
        await listener.received(8)
        await targets.stop()
        await client.send(pcm[len(pcm) // 2 :])
        await client.finish()
        await targets.start()
        await listener.whole()
        assert client.num_reconnects == 0, "the draft server keeps the audio"
    listener.check(spoken_utterances(pcm))
    assert not unverified(listener)


async def test_without_a_draft_the_audio_is_kept_for_a_target(monkeypatch):
    """Any amount of it is kept."""
    monkeypatch.setattr(kept, "MAX_UNREAD_SAMPLES", SAMPLE_RATE)
    pcm = talk()
    async with (
        breaking_pair() as (targets, draft),
        unverified_client(draft, mode=Mode.TARGET_ONLY) as client,
    ):
        listener = Listener(client)
        await client.send(pcm[:BEGUN])
        await listener.received(4)
        await targets.stop()
        sending = asyncio.create_task(client.send(pcm[BEGUN:]))
        await targets.start()
        await sending
        await client.finish()
        await listener.whole()
    listener.check(spoken_utterances(pcm))
    assert not unverified(listener)


async def test_the_duration_of_an_outage_is_limited(monkeypatch):
    """Its audio is not read, so little of it is kept."""
    monkeypatch.setattr(live_failover, "MAX_OUTAGE_S", 0.05)
    async with breaking_pair() as (targets, draft):
        async with unverified_client(draft, mode=Mode.TARGET_ONLY, reconnect_s=0.0) as client:
            listener = Listener(client)
            await client.send(talk()[:BEGUN])
            await listener.received(4)
            await targets.stop()
            with pytest.raises(TargetUnavailable, match=r"was lost for longer than 0\.05 s"):
                await listener.whole()
        await eventually(lambda: draft.service.num_sessions == 0, within_s=PROMPTLY_S)


async def test_draft_only_text_is_proposed_before_the_drafts_own_candidates():
    target = Unsteady(digest="digest")
    target.may_commit.set()
    text = UnverifiedText()
    text.observe(WindowOpened(Window(5, 0, 100, (SPOKEN.start_of_transcript,), 40)))
    text.observe(Commit(5, 0, (1, 2), is_final=False))
    text.observe(Commit(5, 2, (END,), is_final=True))
    request, *others, _ = request_to(target)
    request = replace(request, length=DraftLength.of(Mode.FULL, None))
    session = Session(request, *others, None, unverified=text)
    with pytest.raises(TargetUnavailable):
        async for _ in session.run(second()):
            pass
    assert [(block.window_id, block.base, block.tokens) for block in target.proposed] == [(0, 0, (1, 2, END))]
    assert session.builder.statistics.num_drafted == 3


class Unsteady:
    """A target that opens no session, or is lost right after a final commit."""

    address = "unsteady:1"
    limits = Limits()
    min_round_trip_ns = 0

    def __init__(
        self, *refusals: Exception, digest: str = "digest", is_utterance_end: bool = True, afterwards=()
    ) -> None:
        self._refusals = list(refusals)
        self._afterwards = list(afterwards)  # errors of later sessions
        self.target = TargetDescription("unsteady", digest, SPOKEN, 80, self.limits)
        self.proposed: list[Candidates] = []
        self._marks = (mark(BEGIN, 0.0), mark(ENDED, 1.0))[: 1 + is_utterance_end]
        self._has_audio = asyncio.Event()
        self.may_commit, self.is_lost, self.may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def open(self, *_, **__) -> AsyncIterator[Unsteady]:
        if self._refusals:
            raise self._refusals.pop(0) if len(self._refusals) > 1 else self._refusals[0]
        self._refusals, self._afterwards = self._afterwards, []
        yield self

    def propose(self, block: Candidates) -> None:
        self.proposed.append(block)

    async def send_audio(self, chunk: AudioChunk) -> None:
        self._has_audio.set()

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        await self._has_audio.wait()
        windows = LiveWindows(SPOKEN, LIVE)
        windows.append_audio(AudioChunk(0, b"", marks=self._marks), SAMPLE_RATE)
        window = windows.open(100)
        yield WindowOpened(window)
        await self.may_commit.wait()
        tokens = (1, 2, END)
        yield Commit(window.id, 0, tokens, is_final=True, step=windows.close(window, tokens).step)
        self.is_lost.set()
        raise LOST


def request_to(target: Unsteady) -> tuple[SessionRequest, Unsteady, TargetDescription, None]:
    """Return the arguments of a session on a target, without a draft."""
    request = SessionRequest(LIVE, DraftLength.of(Mode.TARGET_ONLY, None))
    return request, target, target.target, None


def failover_on(target: Unsteady, timeout_s: float = 10.0) -> LiveFailover:
    """Return a session that begins on a target and outlives it."""
    metrics = DraftMetrics(DraftConfig())
    return LiveFailover(*request_to(target), metrics, resume_timeout_s=timeout_s, continue_unverified=True)


async def second() -> AsyncIterator[bytes]:
    """Yield a second of speech."""
    yield speech(1.0)


@pytest.mark.parametrize(("is_utterance_end", "expected"), [(True, {1: [1, 2]}), (False, {})])
async def test_text_that_became_final_as_the_target_was_lost_is_reported(is_utterance_end, expected):
    """The session continues after it, so it would not be reported later."""
    final, steps = [], []
    mismatch = PairMismatch("It has other weights.")
    target = Unsteady(is_utterance_end=is_utterance_end, afterwards=[mismatch])
    session = failover_on(target, timeout_s=0.05)
    with pytest.raises(PairMismatch):
        updates = session.run(second())
        await anext(updates)  # the session is open
        async for segments in updates:
            final += segments
            steps, session.builder.steps = [*steps, *session.builder.steps], []
            target.may_commit.set()
            await target.is_lost.wait()  # a client that reads slowly
    assert texts_of(final) == expected
    assert [(step.start_sample, step.end_sample) for step in steps] == [(0, SAMPLE_RATE)]


def test_the_language_is_known_before_the_next_part_has_a_window():
    windows = LiveWindows(SPOKEN_MULTILINGUAL, replace(LIVE, language="de"))
    windows.append_audio(AudioChunk(0, b"", marks=(mark(BEGIN, 0.0),)), SAMPLE_RATE)
    part = LiveTranscript(SPOKEN_MULTILINGUAL)
    transcript = MergedTranscript(part)
    part.observe(WindowOpened(windows.open(100)))
    transcript.follow_target(LiveTranscript(SPOKEN_MULTILINGUAL))
    assert transcript.language == "de"


def test_segments_of_two_targets_do_not_overlap():
    """Times are estimates, which differ between targets."""
    first = Segment(1.0, 3.0, (1,), " one", words=(Word(1.0, 3.0, " one"),))
    second = Segment(2.5, 4.0, (2,), " two", words=(Word(2.5, 2.8, " two"), Word(3.5, 4.0, " three")))
    merged = MergedTranscript(LiveTranscript(SPOKEN)).take([first, second])
    assert [(s.start_s, s.end_s) for s in merged] == [(1.0, 3.0), (3.0, 4.0)]
    assert [(w.start_s, w.end_s) for s in merged for w in s.words] == [(1.0, 3.0), (3.0, 3.0), (3.5, 4.0)]


class Lingering(Unsteady):
    """Is lost some time after all text has become final."""

    async def events(self) -> AsyncIterator[WindowOpened | Commit]:
        try:
            async for event in super().events():
                yield event
        except TargetUnavailable:
            await self.may_end.wait()
            raise


async def test_a_session_ends_although_its_steps_were_not_read():
    target = Lingering()
    target.may_commit.set()
    session = Session(*request_to(target))
    with pytest.raises(TargetUnavailable):
        async with asyncio.timeout(PROMPTLY_S):
            async for _ in session.run(second()):
                if session.builder.steps:
                    target.may_end.set()


@pytest.mark.parametrize("refusals", [[LOST], [LOST, ServerFull("No slot is free.")]])
async def test_the_wait_for_a_target_that_takes_no_session_is_limited(refusals):
    with pytest.raises(TargetUnavailable, match=r"none has taken the session in 0\.05 s"):
        async with asyncio.timeout(PROMPTLY_S):
            async for segments in failover_on(Unsteady(*refusals, digest="digest"), 0.05).run(second()):
                assert not segments


async def test_a_target_that_is_full_from_the_beginning_is_reported():
    with pytest.raises(ServerFull, match="No slot is free"):
        async for segments in failover_on(Unsteady(ServerFull("No slot is free."), digest="digest")).run(
            second()
        ):
            assert not segments
