"""A live session in one process: any audio, any pieces, any losses, and one text."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import chain, repeat
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from experiments.common.models.scripted import scripted_checkpoint
from experiments.common.models.speech import SPOKEN, SpeechModel, speech, talk
from specwhisper.engine.target_engine import TargetEngine
from specwhisper.errors import PairMismatch, ServerFull, SpecWhisperError, TargetUnavailable
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.types import SAMPLE_RATE, WINDOW_SAMPLES, Commit, EndUtterance, Limits, Mode, Segment
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.drafting import Drafting
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.session import Session, SessionRequest
from specwhisper_draft_server.whisper import LocalTranscriber
from tests.nightly import examples
from tests.rpc.services import PROMPTLY_S
from tests.rpc.speaking import LECTURE, final_text, num_empty_ends, texts_of

LIMITS = Limits(max_sessions=4, max_ahead_samples=3 * WINDOW_SAMPLES)  # the least that is allowed
LOST = TargetUnavailable("It is gone.")
FULL, MISMATCH = ServerFull("No slot is free."), PairMismatch("It has other weights.")
pytestmark = pytest.mark.usefixtures("energy_vad", "fast_retries")


class Unsteady:
    """A target in this process that is lost after some events, again and again.

    Parameters
    ----------
    losses : after how many events each stream is lost, -1 after the first final text; later ones stay.
    attempts : errors of the attempts to open a stream, ``None`` of those that succeed as all later ones do.
    """

    address = "unsteady"

    def __init__(
        self,
        local: LocalTranscriber,
        losses: Iterable[int] = (),
        attempts: Iterable[SpecWhisperError | None] = (),
    ) -> None:
        self._local, self._losses, self._attempts = local, iter(losses), iter(attempts)
        self.describe = local.describe

    @asynccontextmanager
    async def open(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if (error := next(self._attempts, None)) is not None:
            raise error
        async with self._local.open(*args, **kwargs) as stream:
            stream.events = partial(self._until_lost, stream.events, next(self._losses, 0))
            yield stream

    async def _until_lost(self, events: Any, num_events: int) -> AsyncIterator[Any]:
        num = 0
        async for event in events():
            yield event
            num += 1
            is_final = isinstance(event, Commit) and event.piece is not None
            if num == num_events or (num_events == -1 and is_final):
                raise LOST


@asynccontextmanager
async def local_target() -> AsyncIterator[LocalTranscriber]:
    engine = TargetEngine(SpeechModel(LIMITS.max_sessions), limits=LIMITS)
    local = LocalTranscriber(scripted_checkpoint(vocabulary=SPOKEN), engine)
    try:
        yield local
    finally:
        await local.close()


@asynccontextmanager
async def drafting(error_rate: float) -> AsyncIterator[Drafting]:
    model = SpeechModel(4, error_rate=error_rate)
    source = Drafting(scripted_checkpoint("draft", vocabulary=SPOKEN), lambda _: model)
    try:
        yield source
    finally:
        await source.stop()


async def session_on(
    target: Any,
    draft: Drafting | None = None,
    endpointing: EndpointingOptions | None = EndpointingOptions(),  # noqa: B008 (it is frozen)
    live: LiveOptions = LiveOptions(),  # noqa: B008 (it is frozen)
    *,
    timeout_s: float = 30.0,
    **kwargs: Any,
) -> Session:
    options = DecodingOptions.greedy(language="en", live=live)
    mode = Mode.TARGET_ONLY if draft is None else Mode.FULL
    request = SessionRequest(options, DraftLength(mode, None), endpointing)
    metrics = DraftMetrics(DraftConfig())
    described = await target.describe()
    return Session(request, target, described, draft, metrics, resume_timeout_s=timeout_s, **kwargs)


async def pieces(
    pcm: bytes, seed: int, ended_at: tuple[int, ...] = ()
) -> AsyncIterator[bytes | EndUtterance]:
    """Yield audio in pieces of any length, with pauses in which others work."""
    random, at = Random(seed), 0
    while at < len(pcm):
        end = min(at + 2 * random.randint(1, 20_000), len(pcm), *(each for each in ended_at if each > at))
        yield pcm[at:end]
        if end in ended_at:
            yield EndUtterance()
        for _ in range(random.choice((0, 1, 50))):
            await asyncio.sleep(0)
        at = end


async def transcribed(session: Session, audio: AsyncIterator[bytes | EndUtterance]) -> list[Segment]:
    async with asyncio.timeout(60.0):
        return [segment async for update in session.run(audio) for segment in update.segments]


SPEECH = st.lists(st.tuples(st.floats(0.3, 14.0), st.floats(0.04, 12.0)), min_size=1, max_size=4)
ENDPOINTING = st.none() | st.builds(
    EndpointingOptions,
    max_piece_ms=st.sampled_from([2_000, 5_000, 12_000, 28_000]),
    silence_duration_ms=st.sampled_from([32, 300, 2_000]),
    short_silence_ms=st.sampled_from([32, 1_000]),
)


@settings(max_examples=examples(15, 150), deadline=None)
@given(
    lengths_s=SPEECH,
    endpointing=ENDPOINTING,
    ends=st.lists(st.floats(0.0, 1.0), max_size=3),
    losses=st.lists(st.integers(1, 30), max_size=4),
    error_rate=st.sampled_from([None, 0.0, 0.5]),
    confirm_every_ms=st.sampled_from([None, 300, 2_000]),
    seed=st.integers(0, 1_000),
)
@example(  # the client ends an utterance just before speech, whose beginning has some of that silence
    lengths_s=[(1.0, 1.0), (1.0, 1.0), (13.0, 12.0), (5.0, 11.5)],
    endpointing=EndpointingOptions(max_piece_ms=2_000, silence_duration_ms=32, short_silence_ms=32),
    ends=[0.6328125],
    losses=[],
    error_rate=None,
    confirm_every_ms=None,
    seed=0,
)
async def test_the_text_is_that_of_a_target_alone(
    lengths_s, endpointing, ends, losses, error_rate, confirm_every_ms, seed
):
    """However the audio comes, where the client ends utterances, and whichever targets are lost or refuse."""
    pcm = b"".join(
        speech(speech_s, number) + bytes(2 * round(silence_s * SAMPLE_RATE))
        for number, (speech_s, silence_s) in enumerate(lengths_s)
    )
    ended_at = tuple(sorted({2 * round(end * len(pcm) / 2) for end in ends} - {0, len(pcm)}))
    live = LiveOptions(step_ms=300, confirm_every_ms=confirm_every_ms)
    async with AsyncExitStack() as stack:
        target = Unsteady(await stack.enter_async_context(local_target()), losses, (None, FULL, MISMATCH))
        draft = None if error_rate is None else await stack.enter_async_context(drafting(error_rate))
        session = await session_on(target, draft, endpointing, live)
        segments = await transcribed(session, pieces(pcm, seed, ended_at))
    expected = final_text(pcm, endpointing, ended_at)
    assert {number: text for number, text in texts_of(segments).items() if number or text} == expected
    ended = [segment.utterance for segment in segments if segment.is_utterance_end]
    assert [number for number in dict.fromkeys(ended) if number] == list(expected)
    assert len(ended) - len(expected) == num_empty_ends(pcm, endpointing, ended_at)
    starts = [segment.start_s for segment in segments]
    assert starts == sorted(starts)


async def test_a_session_of_silence_and_speech_never_waits_for_ever():
    """Far more audio than a target takes ahead, at once."""
    pcm = LECTURE + bytes(2 * 150 * SAMPLE_RATE) + LECTURE * 4 + bytes(2 * 100 * SAMPLE_RATE) + talk()
    async with local_target() as local:
        target = Unsteady(local, (3, 40))
        segments = await transcribed(await session_on(target), pieces(pcm, 0))
    assert texts_of(segments) == final_text(pcm)


async def test_text_that_became_final_as_the_target_was_lost_is_reported():
    """The session continues after it, so it would not be reported later."""

    async def audio() -> AsyncIterator[bytes]:
        yield talk()[: 6 * SAMPLE_RATE * 2]

    async with local_target() as local:
        target = Unsteady(local, (-1,), chain((None,), repeat(MISMATCH)))
        session, final = await session_on(target, timeout_s=0.05), []
        with pytest.raises(PairMismatch):
            async for update in session.run(audio()):
                final += update.segments
    assert texts_of(final) == {1: final_text(talk())[1]}


@pytest.mark.parametrize("error", [LOST, FULL, MISMATCH])
async def test_a_target_that_never_takes_the_session_is_reported(error):
    async with local_target() as local:
        target = Unsteady(local, attempts=repeat(error))
        session = await session_on(target, timeout_s=0.05)
        with pytest.raises(type(error), match=str(error)):
            async with asyncio.timeout(PROMPTLY_S):
                await transcribed(session, pieces(talk(), 0))
