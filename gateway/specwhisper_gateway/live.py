"""``/live``: the page's own WebSocket. Audio goes up; every change of the text comes down."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, WebSocket

from specwhisper.audio.canonical import MAX_SAMPLE_RATE, MIN_SAMPLE_RATE
from specwhisper.errors import InvalidRequest, MessageTooLarge
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.tasks import running
from specwhisper.transcription.speakers import UtteranceSpeakers
from specwhisper.types import Mode, Segment
from specwhisper.validated import REQUIRED, choice, option, switch, text, to_text, whole
from specwhisper_client.live_transcription import Utterances
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import ResumePoint, Update
from specwhisper_gateway.errors import ClientGone, InvalidField
from specwhisper_gateway.messages import interim_of, read_object
from specwhisper_gateway.option_fields import values_of, within
from specwhisper_gateway.sockets import Peer, accepted, check_origin, stall_timeout
from specwhisper_gateway.state import Gateway, TakeSession, admit_later, gateway_of

MAX_AUDIO_BYTES = 256 * 1024  # other clients wait while it is resampled
RECONNECT_S = 10.0  # after it, the page shows that the connection is lost

router = APIRouter()


def _to_state(value: Any) -> bytes:
    try:
        return base64.b64decode(to_text(value) or "", validate=True)
    except ValueError:
        raise ValueError("it must be in base64") from None


@dataclass(frozen=True, kw_only=True)
class Point:
    """Where a stream continues, as the last update reported it."""

    state: bytes = option(REQUIRED, read=_to_state)
    start_sample: int = whole(REQUIRED, 0, 2**62)
    num_ends: int = whole(0, 0, 2**31 - 1)


@dataclass(frozen=True, kw_only=True)
class Change:
    """Change whether to draft; ``None`` leaves it to the server."""

    type: str
    mode: Mode | None = choice(None, choices=(Mode.TARGET_ONLY, Mode.FULL))
    added_latency_ms: int = whole(0, 0, 2_000)


@dataclass(frozen=True, kw_only=True)
class Start(Change):
    """Start a transcription; audio of this sample rate, in Hz, follows."""

    sample_rate: int = whole(REQUIRED, MIN_SAMPLE_RATE, MAX_SAMPLE_RATE)
    languages: str = text()
    resume_point: ResumePoint | None = within(Point, read=lambda values: ResumePoint(**values))
    speakers: bool = switch(False)  # whether to name them, if the gateway has models for speakers


@dataclass(frozen=True, kw_only=True)
class Finish:
    type: str


Message = Start | Change | Finish
KINDS: dict[Any, type[Message]] = {"start": Start, "change": Change, "finish": Finish}


def read_message(frame: str) -> Message:
    """Parse and validate a control message.

    Raises ``InvalidRequest`` for its first error.
    """
    message = read_object(frame)
    kind = KINDS.get(str(message.get("type")))
    if kind is None:
        raise InvalidField(f"The message's type must be one of: {', '.join(KINDS)}.", "type")
    return kind(**values_of(kind, message))


def update_message(news: Update, resume_point: ResumePoint | None) -> dict[str, Any]:
    """Return an update of the text; one of the speech leaves the text as it is."""
    if news.speech is not None:
        return {"type": "speech", "event": news.speech.value, "at_s": news.speech_at_s}
    report: dict[str, Any] = {
        "type": "update",
        "finals": [_final(segment) for segment in news.segments],
        **interim_of(news),
        "is_unverified": news.is_unverified,
        "received_s": round(news.received_s, 3),
    }
    if resume_point is not None:
        report["resume_point"] = {
            "state": base64.b64encode(resume_point.state).decode(),
            "start_sample": resume_point.start_sample,
            "num_ends": resume_point.num_ends,
        }
    if news.statistics is not None:
        report["statistics"] = _statistics(news.statistics)
    return report


def _final(segment: Segment) -> dict[str, Any]:
    return {
        "text": segment.text,
        "start_s": segment.start_s,
        "end_s": segment.end_s,
        "utterance": segment.utterance,
        "is_utterance_end": segment.is_utterance_end,
        "words": [
            {"text": word.text, "start_s": round(word.start_s, 2), "end_s": round(word.end_s, 2)}
            for word in segment.words
        ],
    }


def _statistics(statistics: SpeculationStatistics) -> dict[str, Any]:
    num_answers = statistics.num_answers
    round_trip_ns = statistics.network_ns / num_answers if num_answers else statistics.min_round_trip_ns
    return {
        "drafted": statistics.num_drafted,
        "verified": statistics.num_verified,
        "accepted": statistics.num_accepted,
        "committed": statistics.num_committed,
        "passes": statistics.num_forwards,
        "steps": statistics.num_windows,
        "round_trip_ms": round(round_trip_ns / 1e6, 2),
    }


class LiveConnection:
    """Runs a transcription for the page; it takes a session when the page sends more than its settings."""

    def __init__(self, gateway: Gateway, peer: Peer, take_session: TakeSession) -> None:
        self._gateway = gateway
        self._peer = peer
        self._take_session = take_session
        self._has_finished = False

    async def run(self) -> None:
        frames = self._peer.frames()
        first = await self._next(frames)
        start = read_message(first) if isinstance(first, str) else None
        if not isinstance(start, Start):
            raise InvalidField("A stream begins with a message of type 'start'; this one does not.")
        second = await self._next(frames)
        self._take_session()
        speakers = self._speakers(start)
        stream = StreamingClient(
            self._gateway.config.server,
            resume_point=start.resume_point,
            mode=start.mode,
            sample_rate=start.sample_rate,
            added_latency_ms=start.added_latency_ms,
            continue_unverified=True,
            languages=start.languages,
            with_statistics=True,
            reconnect_s=RECONNECT_S,
            servers=self._gateway.client.servers,
            speakers=speakers,
        )
        choice = "choose one of the list, or leave it empty."  # a page has no room for all
        await self._gateway.check_languages(stream.options, "languages", choice)
        start_s = stream.received_s
        async with stream:
            work = (self._read(second, frames, stream), self._send(stream, speakers))
            try:
                async with running(*work) as (reading, sending):
                    await asyncio.wait((reading, sending), return_when=asyncio.FIRST_COMPLETED)
                    if not sending.done():
                        reading.result()
                        raise ClientGone("The page was closed before its transcription ended.")
                    sending.result()
            finally:
                self._gateway.metrics.count(stream.statistics, stream.received_s - start_s)
        await self._peer.send({"type": "done"})

    def _speakers(self, start: Start) -> UtteranceSpeakers | None:
        found = self._gateway.config.speakers
        if found is None or not start.speakers:
            return None
        point = start.resume_point
        return found.live(start_sample=point.start_sample if point is not None else 0)

    async def _next(self, frames: AsyncGenerator[str | bytes]) -> str | bytes:
        if (frame := await anext(frames, None)) is None:
            raise ClientGone("The page was closed before it sent any audio.")
        return frame

    async def _read(
        self, second: str | bytes, frames: AsyncGenerator[str | bytes], stream: StreamingClient
    ) -> None:
        await self._follow(second, stream)
        async for frame in frames:
            await self._follow(frame, stream)

    async def _follow(self, frame: str | bytes, stream: StreamingClient) -> None:
        if isinstance(frame, bytes):
            if len(frame) > MAX_AUDIO_BYTES:
                raise MessageTooLarge(f"An audio message has {len(frame)} bytes: {MAX_AUDIO_BYTES} at most.")
            async with stall_timeout():
                await stream.send(frame)
            return
        try:
            match read_message(frame):
                case Start():
                    raise InvalidField(
                        "The stream has started already: send 'change', or open another connection."
                    )
                case Change() as change if not self._has_finished:
                    stream.change(mode=change.mode, added_latency_ms=change.added_latency_ms)
                case Finish() if not self._has_finished:
                    self._has_finished = True
                    async with stall_timeout():
                        await stream.finish()
        except InvalidRequest as error:
            await self._peer.report(error)

    async def _send(self, stream: StreamingClient, speakers: UtteranceSpeakers | None) -> None:
        model, utterances = None, Utterances()
        complete: asyncio.Queue[Segment | None] = asyncio.Queue()
        async with running(self._send_speakers(complete, speakers)) as (naming,):
            async with aclosing(aiter(stream)) as updates:
                async for update in updates:
                    if stream.model is not None and stream.model != model:
                        model = stream.model
                        ready = {"type": "ready", "target": model.target, "draft": model.draft}
                        await self._peer.send(ready)
                    await self._peer.send(update_message(update, stream.resume_point))
                    for utterance in utterances.add(update.segments):
                        complete.put_nowait(utterance)
            complete.put_nowait(None)
            await naming

    async def _send_speakers(
        self, utterances: asyncio.Queue[Segment | None], speakers: UtteranceSpeakers | None
    ) -> None:
        while speakers is not None and (utterance := await utterances.get()) is not None:
            named = await speakers.named(utterance)
            await self._peer.send({"type": "speaker", "utterance": named.utterance, "speaker": named.speaker})


# Refuses pages of other sites, with keys too: they may use /v1/realtime.
@router.websocket("/live", dependencies=[Depends(check_origin)])
async def live(socket: WebSocket, take_session: Annotated[TakeSession, Depends(admit_later)]) -> None:
    """Transcribe for the page."""
    async with accepted(socket) as peer:
        await LiveConnection(gateway_of(socket), peer, take_session).run()
