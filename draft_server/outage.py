"""A live session that outlives its target: meanwhile the draft goes on alone, and is verified afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from time import monotonic

from draft_server.alone import Alone
from draft_server.drafting import Drafting
from draft_server.session import Session, SessionRequest
from specwhisper.audio.kept import KeptAudio
from specwhisper.errors import PairMismatch, ServerDraining, ServerFull, TargetUnavailable
from specwhisper.live import LiveOptions
from specwhisper.speculation.draft_length import DraftLength
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.live_transcript import LiveTranscript
from specwhisper.transcription.transcriber import TargetDescription, Transcriber
from specwhisper.types import SAMPLE_RATE, DecodedStep, Mode, Segment, VoiceEvent, VoiceMark

logger = logging.getLogger(__name__)

KNOCK_EVERY_S, MAX_KNOCK_S = 1.0, 15.0
MAX_KEPT_SAMPLES = 900 * SAMPLE_RATE  # beyond a quarter of an hour the session ends
MAX_WAIT_S = 60.0  # for the target, once the audio has ended
LOST = (TargetUnavailable, ServerDraining, ServerFull)


class UnverifiedSession:
    """Runs a live transcription as :class:`Session` does, on one target after the other.

    It begins each from the last verified word. What the draft wrote alone is never final; utterance by
    utterance it gives way to what the target writes.

    Parameters
    ----------
    target : as it described itself, now or when it was there last.
    is_lost : whether it cannot be reached now; then the draft begins alone.

    Attributes
    ----------
    speech_events : as :class:`Session` has them.
    steps : decodings of the target; whoever tells them clears them.
    """

    def __init__(
        self,
        request: SessionRequest,
        transcriber: Transcriber,
        target: TargetDescription,
        drafting: Drafting | None,
        *,
        is_lost: bool = False,
    ) -> None:
        self._request = request
        self._transcriber = transcriber
        self._target = target
        self._is_lost = is_lost
        self._drafting = drafting
        self._audio = KeptAudio(self._live.start_sample)
        self._session = self._new_session(transcriber)
        self._is_alone = False
        self._written: dict[int, str] = {}  # by the draft alone, by utterance
        self._counted = SpeculationStatistics()  # of targets that are lost
        self._has_begun = False  # on some target
        self._knock_s = KNOCK_EVERY_S
        self._language: str | None = None  # that sessions which have ended heard last
        self._heard_samples = self._live.start_sample  # by them
        self._told_to_s = 0.0  # end of the last segment
        self._told_to = -1  # sample, of speech events
        self._told: VoiceEvent | None = None  # the last one
        self._waits_since_s: float | None = None  # for a target that takes a session, behind the audio's end
        self.speech_events: list[VoiceMark] = []

    @property
    def builder(self) -> UnverifiedSession:
        """The transcript so far."""
        return self

    @property
    def is_unverified(self) -> bool:
        """Whether some of the draft text was written alone."""
        return self._is_alone or bool(self._written)

    @property
    def num_samples(self) -> int:
        """Audio so far; what is heard again does not count twice."""
        return max(self._heard_samples, self._session.builder.num_samples)

    @property
    def language(self) -> str:
        """Of the open utterance, or the last one."""
        return self._spoken or self._session.builder.language

    @property
    def _spoken(self) -> str | None:
        """The language that was heard last, by this session or one before."""
        builder = self._session.builder
        return builder.language if builder.statistics.num_windows else self._language

    @property
    def language_probs(self) -> Mapping[str, float]:
        """By code, where the language was detected."""
        return self._session.builder.language_probs

    @property
    def statistics(self) -> SpeculationStatistics:
        """How the draft has done on all targets."""
        total = SpeculationStatistics()
        total.add(self._counted)
        if not self._is_alone:
            total.add(self._session.builder.statistics)
        return total

    @property
    def position(self) -> LiveOptions:
        """Where another session would go on: behind the last verified word."""
        return self._live if self._is_alone else self._transcript.position

    @property
    def steps(self) -> list[DecodedStep]:
        """Decodings of the target."""
        return [] if self._is_alone else self._transcript.steps

    @steps.setter
    def steps(self, steps: list[DecodedStep]) -> None:
        self._transcript.steps = steps

    @property
    def span_s(self) -> tuple[float, float]:
        """What is not final begins and ends here, in seconds."""
        return self._live.start_sample / SAMPLE_RATE, self.num_samples / SAMPLE_RATE

    @property
    def verified_text(self) -> str:
        """What the target has written that is not final."""
        return "" if self._is_alone else self._transcript.verified_text

    @property
    def draft_text(self) -> str:
        """What the draft has written alone, and what it believes to follow."""
        transcript = self._transcript
        if self._is_alone:
            return self._written_from(0) + transcript.verified_text + transcript.draft_text
        current = transcript.position.utterance + 1
        own = transcript.draft_text
        if own or transcript.verified_text:
            return own + self._written_from(current + 1)
        return self._written_from(current)

    def _written_from(self, utterance: int) -> str:
        return "".join(text for number, text in sorted(self._written.items()) if number >= utterance)

    async def run(self, audio: AsyncIterator[bytes]) -> AsyncGenerator[list[Segment]]:
        """Transcribe canonical PCM; give the segments that became final whenever anything has changed."""
        reading = asyncio.create_task(self._read(audio))
        try:
            if self._is_lost:
                self._has_begun = True  # whoever comes back and is full is awaited
                async with aclosing(self._run_alone(reading)) as changes:
                    async for _ in changes:
                        yield []
            while True:
                try:
                    async with aclosing(self._run_session(reading)) as updates:
                        async for segments in updates:
                            self._waits_since_s = None
                            self._has_begun, self._knock_s = True, KNOCK_EVERY_S
                            self._note(segments)
                            yield self._in_order(segments)
                    return
                except LOST as error:
                    if isinstance(error, ServerFull) and not self._has_begun:
                        raise  # nothing is lost: there is no room
                    self._has_begun = True
                    logger.warning("target lost", extra={"session": self._session.id, "error": str(error)})
                self._counted.add(self._session.builder.statistics)
                self._go_on_from(self._transcript.position)
                async with aclosing(self._run_alone(reading)) as changes:
                    async for _ in changes:
                        yield []
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _run_session(self, reading: asyncio.Task[None]) -> AsyncGenerator[list[Segment]]:
        """Run on the target, from where the last one was lost."""
        self._begin(self._new_session(self._transcriber))
        pieces = self._audio.pieces(self._live.start_sample)
        async with aclosing(self._session.run(pieces)) as updates:
            async for segments in updates:
                if reading.done():
                    await reading
                self.speech_events += self._take_events()
                yield segments
        if reading.done():
            await reading  # what was wrong with the last message is told as well

    async def _run_alone(self, reading: asyncio.Task[None]) -> AsyncGenerator[None]:
        """Let the draft go on alone until the target answers."""
        language = self._request.options.language or self._spoken or self._target.vocabulary.default_language
        options = replace(
            self._request.options,
            language=(language or "en") if self._target.vocabulary.languages else None,
            live=replace(self._live, recalls=False),
            hotwords="",
            initial_prompt="",
            carry_initial_prompt=False,
            word_timestamps=False,
        )
        request = replace(self._request, options=options, length=_alone(self._request.length))
        self._begin(self._new_session(Alone(), request))
        self._is_alone, self._written = True, {}
        updates = self._session.run(self._audio.pieces(self._live.start_sample))
        knocking = asyncio.create_task(self._knock())
        try:
            async with aclosing(_until(knocking, updates)) as changes:
                async for segments in changes:
                    for segment in segments:
                        self._write(segment.utterance, segment.text)
                    self.speech_events += self._take_events()
                    yield
            if reading.done():
                await reading  # whom no target can help need not wait for one
            await knocking
        finally:
            knocking.cancel()
            await asyncio.gather(knocking, return_exceptions=True)
            transcript = self._transcript
            self._write(transcript.position.utterance + 1, transcript.verified_text + transcript.draft_text)
            self._is_alone = False

    async def _knock(self) -> None:
        """Wait until the target answers."""
        while True:
            await asyncio.sleep(self._knock_s)
            if self._audio.num_samples > MAX_KEPT_SAMPLES:
                raise TargetUnavailable(
                    f"Target {self._transcriber.address} was lost for longer than "
                    f"{MAX_KEPT_SAMPLES // SAMPLE_RATE} s."
                )
            if self._audio.is_complete:
                self._waits_since_s = self._waits_since_s or monotonic()
                waited_s = monotonic() - self._waits_since_s
            else:
                waited_s = 0.0
            if waited_s > MAX_WAIT_S:
                raise TargetUnavailable(
                    f"Target {self._transcriber.address} was lost, and is not back {MAX_WAIT_S:g} s after "
                    "the end of the audio."
                )
            try:
                target = await self._transcriber.describe()
            except LOST:
                continue
            if target.weights_digest != self._target.weights_digest:
                raise PairMismatch(
                    f"Target {self._transcriber.address} came back with other weights than the session "
                    "began on: begin another one."
                )
            # Where it answers and takes no session after all, it is left alone for longer each time.
            self._knock_s = min(2 * self._knock_s, MAX_KNOCK_S)
            return

    def _note(self, segments: list[Segment]) -> None:
        """Let what was written alone give way to what is verified."""
        for segment in segments:
            if segment.is_utterance_end:
                self._written = {n: text for n, text in self._written.items() if n > segment.utterance}
        if not self._is_alone:
            self._go_on_from(self._transcript.position)

    def _in_order(self, segments: list[Segment]) -> list[Segment]:
        """Let nothing begin before what was told by a target that is lost: its times are estimates too."""
        ordered = []
        for segment in segments:
            start_s = max(segment.start_s, self._told_to_s)
            self._told_to_s = max(segment.end_s, start_s)
            words = tuple(
                replace(word, start_s=max(word.start_s, start_s), end_s=max(word.end_s, start_s))
                for word in segment.words
            )
            ordered.append(replace(segment, start_s=start_s, end_s=self._told_to_s, words=words))
        return ordered

    def _write(self, utterance: int, text: str) -> None:
        if text.strip():
            self._written[utterance] = self._written.get(utterance, "") + text

    def _go_on_from(self, position: LiveOptions) -> None:
        live = replace(
            self._live,
            start_sample=position.start_sample,
            utterance=position.utterance,
            final_tokens=position.final_tokens,
        )
        self._request = replace(self._request, options=replace(self._request.options, live=live))
        self._audio.forget_before(position.start_sample)

    def _take_events(self) -> list[VoiceMark]:
        """Take what was not told yet: audio that is heard again has the same events again."""
        events, self._session.speech_events = self._session.speech_events, []
        fresh = []
        for mark in events:
            # Where a window was cut, its utterance seems to begin.
            if mark.sample > self._told_to and mark.event is not self._told:
                self._told_to, self._told = mark.sample, mark.event
                fresh.append(mark)
        return fresh

    @property
    def _live(self) -> LiveOptions:
        return self._request.options.live or LiveOptions()

    @property
    def _transcript(self) -> LiveTranscript:
        if not isinstance(self._session.builder, LiveTranscript):
            raise RuntimeError("Only live audio goes on without a target.")
        return self._session.builder

    async def _read(self, audio: AsyncIterator[bytes]) -> None:
        try:
            async for pcm in audio:
                await self._audio.put(pcm)
        finally:
            self._audio.finish()

    def _begin(self, session: Session) -> None:
        self._heard_samples, self._language = self.num_samples, self._spoken
        self._session = session

    def _new_session(self, transcriber: Transcriber, request: SessionRequest | None = None) -> Session:
        return Session(request or self._request, transcriber, self._target, self._drafting)


def _alone(length: DraftLength) -> DraftLength:
    """Give how a draft writes that nobody helps: it neither waits nor pauses, for nobody would go on."""
    mode = Mode.FULL if length.mode.drafts else length.mode
    return DraftLength(mode, length.gamma, min_confidence=0.0)


async def _until(
    knocking: asyncio.Task[None], updates: AsyncGenerator[list[Segment]]
) -> AsyncGenerator[list[Segment]]:
    """Give updates until the target answers, or the audio has ended."""
    async with aclosing(updates):
        while not knocking.done():
            following = asyncio.ensure_future(anext(updates, None))
            try:
                await asyncio.wait((knocking, following), return_when=asyncio.FIRST_COMPLETED)
                if not following.done() or (segments := following.result()) is None:
                    return
            finally:  # nobody may close what is still running
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            yield segments
