"""A realtime session: client events in, server events out."""

from __future__ import annotations

import asyncio
import base64
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, WebSocket

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.errors import InvalidRequest
from specwhisper.rpc.tokens import SCHEME
from specwhisper.tasks import running
from specwhisper.transcription.hints import MAX_START_S, HintFeed, hint_at
from specwhisper.types import SAMPLE_RATE, TimedHint
from specwhisper.validated import REQUIRED, number, text
from specwhisper_client.streaming import StreamingClient
from specwhisper_gateway.errors import InvalidField
from specwhisper_gateway.messages import event, new_id, read_object, warning_event
from specwhisper_gateway.option_fields import SHOWN_CHARS, values_of
from specwhisper_gateway.realtime import riva
from specwhisper_gateway.realtime.settings import LANGUAGE, RealtimeSettings, nested
from specwhisper_gateway.realtime.turn import Backlog, Items, RealtimeTurn, TurnAudio
from specwhisper_gateway.refusals import authorization
from specwhisper_gateway.sockets import (
    RIVA_SUBPROTOCOL,
    Peer,
    accepted,
    check_origin_without_keys,
    stall_timeout,
)
from specwhisper_gateway.state import Gateway, TakeSession, admit_later, gateway_of

KNOWN = (
    "session.update",
    "transcription_session.update",
    "input_audio_buffer.append",
    "input_audio_buffer.commit",
    "input_audio_buffer.clear",
    "input_audio_buffer.hint",
)


def event_id_of(event: dict[str, Any]) -> str | None:
    event_id = event.get("event_id")
    return event_id if isinstance(event_id, str) else None


def read_event(frame: str | bytes) -> dict[str, Any]:
    if isinstance(frame, bytes):
        raise InvalidField(
            "Events are JSON in text messages, and this is a binary one: send audio in base64 with "
            "input_audio_buffer.append.",
            code="invalid_message",
        )
    return read_object(frame, audio="audio")


def session_of(event: dict[str, Any]) -> dict[str, Any]:
    session = event.get("session")
    if not isinstance(session, dict):
        raise InvalidField(f"{event['type']} needs an object 'session'.", "session")
    return session


@dataclass
class _Hint:
    text: str = text(REQUIRED)
    audio_start_ms: float = number(REQUIRED, 0, 1000 * MAX_START_S)


def hint_of(event: dict[str, Any]) -> TimedHint:
    asked = values_of(_Hint, {name: event[name] for name in ("text", "audio_start_ms") if name in event})
    try:
        return hint_at(asked["audio_start_ms"] / 1000, asked["text"])
    except InvalidRequest as error:
        raise InvalidField(str(error), "text") from error


def audio_of(event: dict[str, Any]) -> bytes:
    audio = event.get("audio")
    if not isinstance(audio, str):
        raise InvalidField("input_audio_buffer.append needs 'audio', samples in base64.", "audio")
    try:
        return base64.b64decode(audio, validate=True)
    except ValueError as error:
        sentence = "audio is not base64: encode the samples' bytes."
        raise InvalidField(sentence, "audio", "invalid_base64") from error


@dataclass(slots=True)
class _Run:
    """A turn and its transcription.

    Attributes
    ----------
    settings : those of the session when the turn began.
    audio : what its draft server has not taken yet.
    num_samples : audio so far, at the client's sample rate.
    work : the task that reads the transcription's updates, once it runs.
    """

    turn: RealtimeTurn
    settings: RealtimeSettings
    audio: TurnAudio
    num_samples: int = 0
    is_cleared: bool = False
    work: asyncio.Future[None] | None = None

    @property
    def length_s(self) -> float:
        return self.num_samples / self.settings.audio_format.rate


class RealtimeConnection:
    """One client's session.

    Parameters
    ----------
    take_session : called when audio comes.
    is_beta : whether the client uses the beta of OpenAI's API.
    is_riva : whether it is Riva's: it commits every piece, and ends the audio with an event.
    """

    def __init__(
        self,
        gateway: Gateway,
        peer: Peer,
        settings: RealtimeSettings,
        take_session: TakeSession,
        *,
        is_beta: bool,
        is_riva: bool = False,
    ) -> None:
        self._gateway = gateway
        self._peer = peer
        self._settings = settings
        self._take_session = take_session
        self._id = new_id("sess")
        self._items = Items(is_beta)
        self._is_riva = is_riva
        self._pieces = riva.WavPieces()
        self._rest = b""  # the start of a sample that the next piece of audio completes
        self._previous_s = 0.0  # audio of the turns before the open one
        self._hints = HintFeed()
        self._open: _Run | None = None  # the turn that receives audio
        self._backlog = Backlog()
        self._waiting: asyncio.Queue[_Run | None] = asyncio.Queue()  # None: no more audio

    async def run(self) -> None:
        if self._is_riva:
            conversation = {"id": new_id("conv"), "object": "realtime.conversation"}
            await self._peer.send(event("conversation.created", conversation=conversation))
        else:
            await self._send_session("created", is_flat=self._items.is_beta)
        async with running(self._read(), self._transcribe()) as tasks:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    async def _read(self) -> None:
        async for frame in self._peer.frames():
            received: dict[str, Any] = {}
            try:
                received = read_event(frame)
                await self._follow(received)
            except InvalidRequest as error:
                await self._peer.report(error, event_id_of(received))
            await self._backlog.has_room()

    async def _follow(self, received: dict[str, Any]) -> None:
        match received.get("type"):
            case "input_audio_buffer.append":
                audio = audio_of(received)
                if self._is_riva:
                    audio = self._pieces.samples_of(audio)
                samples, self._rest = self._settings.audio_format.decode(self._rest + audio)
                self._append(samples)
                riva_config = received.get("runtime_config")
                if isinstance(riva_config, dict) and riva_config.get("force_eou") == "true":
                    self._pieces.finish()
                    await self._end_turn()
            case "input_audio_buffer.commit" if self._is_riva:
                pass  # the client commits every piece
            case "input_audio_buffer.commit":
                if self._open is None:
                    raise InvalidField(
                        "Error committing input audio buffer: it is empty.",
                        code="input_audio_buffer_commit_empty",
                    )
                await self._end_turn()
            case "input_audio_buffer.clear":
                self._clear()
                await self._peer.send(event("input_audio_buffer.cleared"))
            case "input_audio_buffer.hint":
                self._hints.put(hint_of(received))
                self._send_hints()
            case "input_audio_buffer.done" if self._is_riva:
                await self._end_turn()
                self._waiting.put_nowait(None)
            case "session.update" | "transcription_session.update" as kind:
                await self._update(received, is_flat=kind == "transcription_session.update")
            case kind:
                known = ", ".join(KNOWN)
                sentence = f"Invalid value: {str(kind)[:SHOWN_CHARS]!r}. Supported events are: {known}."
                raise InvalidField(sentence, "type")

    def _append(self, pcm: bytes) -> None:
        if not pcm:
            return
        run = self._open or self._begin_turn()
        # One second at a time: other clients wait while a piece is resampled.
        piece_bytes = run.settings.audio_format.rate * BYTES_PER_SAMPLE
        for start in range(0, len(pcm), piece_bytes):
            run.audio.put(pcm[start : start + piece_bytes])
        run.num_samples += len(pcm) // BYTES_PER_SAMPLE

    def _begin_turn(self) -> _Run:
        self._take_session()
        settings = self._settings
        turn = RealtimeTurn(
            self._items,
            self._previous_s,
            detects_speech=settings.endpointing is not None,
            interim_results=settings.interim_results,
        )
        self._open = run = _Run(turn, settings, TurnAudio(self._backlog))
        self._waiting.put_nowait(run)
        self._hints.restart()
        self._send_hints()
        return run

    def _send_hints(self) -> None:
        """Send the open turn new hints, whose times count the audio before the turn too."""
        if self._open is not None:
            for hint in self._hints.take():
                start_sample = max(0, hint.start_sample - round(self._previous_s * SAMPLE_RATE))
                self._open.audio.put(replace(hint, start_sample=start_sample))

    async def _end_turn(self) -> None:
        self._rest = b""
        if (run := self._open) is None:
            return
        self._close_turn(run)
        await self._peer.send(*run.turn.commit(run.length_s))

    def _clear(self) -> None:
        """Discard audio that is not committed; what is committed is still completed."""
        self._rest = b""
        if (run := self._open) is None:
            return
        self._close_turn(run)
        if not run.turn.discard():
            run.is_cleared = True
            run.audio.discard()
            if run.work is not None:
                run.work.cancel()

    def _close_turn(self, run: _Run) -> None:
        run.audio.put(None)
        self._open = None
        self._previous_s += run.length_s

    async def _update(self, received: dict[str, Any], *, is_flat: bool) -> None:
        ignored: list[InvalidField] = []
        update = session_of(received)
        if self._is_riva:
            settings = riva.updated(self._settings, update)
        else:
            settings = self._settings.updated(nested(update) if is_flat else update, ignored)
        if settings.model != self._settings.model:
            name = await self._gateway.model_names.resolve(settings.model)
            settings = replace(settings, model=name)
        if settings.languages != self._settings.languages:
            await self._gateway.check_languages(settings.options(), LANGUAGE)
        if settings != self._settings:
            await self._end_turn()  # a running transcription keeps its settings
        self._settings = settings
        if ignored:
            await self._peer.send(warning_event(ignored, event_id_of(received)))
        await self._send_session("updated", is_flat=is_flat)

    async def _transcribe(self) -> None:
        """Run the turns one by one.

        A client has one session on the draft server, however it commits.
        """
        while True:
            run = await self._waiting.get()
            if run is None:
                await self._peer.send(self._items.last_event())
                continue
            if not run.is_cleared:
                await self._run(run)
            run.audio.end()

    async def _run(self, run: _Run) -> None:
        """Send a turn's audio and read its text, until the text is final or the turn is cleared."""
        async with self._stream(run.settings) as stream:
            async with running(_feed(stream, run.audio), self._read_text(stream, run)) as (feeding, work):
                run.work = work
                await asyncio.wait((feeding, work), return_when=asyncio.FIRST_COMPLETED)
                if feeding.done():
                    feeding.result()
                    await asyncio.wait((work,))
            if not work.cancelled():
                work.result()

    def _stream(self, settings: RealtimeSettings) -> StreamingClient:
        return StreamingClient(
            self._gateway.config.server,
            settings.options(),
            endpointing=settings.endpointing,
            sample_rate=settings.audio_format.rate,
            interim_results=settings.interim_results,
            servers=self._gateway.client.servers,
        )

    async def _read_text(self, stream: StreamingClient, run: _Run) -> None:
        turn = run.turn
        try:
            async with aclosing(aiter(stream)) as updates:
                async for update in updates:
                    await self._peer.send(*turn.on_update(update))
            await self._peer.send(*turn.end(run.length_s))
        except InvalidRequest as error:
            await self._peer.send(*turn.fail(error))
            await self._peer.report(error)
            if self._open is run:
                self._close_turn(run)
        finally:
            self._gateway.metrics.count(stream.statistics, run.length_s)

    async def _send_session(self, what: str, *, is_flat: bool) -> None:
        facts = {"id": self._id, "object": "realtime.transcription_session"}
        described = self._settings.describe_flat() if is_flat else self._settings.describe()
        kind = f"transcription_session.{what}" if is_flat else f"session.{what}"
        await self._peer.send(event(kind, session=facts | described))


async def _feed(stream: StreamingClient, audio: TurnAudio) -> None:
    """Send a turn's audio as fast as its draft server takes it."""
    async with aclosing(audio.taken()) as pieces:
        async for piece in pieces:
            if isinstance(piece, TimedHint):
                stream.hint(piece.text, piece.start_sample / SAMPLE_RATE)
                continue
            async with stall_timeout():
                await stream.send(piece)
            await asyncio.sleep(0)
    async with stall_timeout():
        await stream.finish()


router = APIRouter(prefix="/v1/realtime")
RIVA_DEFAULTS = {"input_audio_params": {"sample_rate_hz": riva.SAMPLE_RATE, "num_channels": 1}}
BETA_HEADER, BETA_SUBPROTOCOL = "realtime=v1", "openai-beta.realtime-v1"


@router.websocket("", dependencies=[Depends(check_origin_without_keys)])
async def realtime(socket: WebSocket, take_session: Annotated[TakeSession, Depends(admit_later)]) -> None:
    """Transcribe live audio; an invalid request is answered with an event."""
    gateway = gateway_of(socket)
    if socket.query_params.get("intent", "transcription") != "transcription":
        raise InvalidField(
            "Only transcription sessions are offered: connect with ?intent=transcription.", "intent"
        )
    model = await gateway.model_names.resolve(socket.query_params.get("model", ""))
    await gateway.client.get_model()  # fails here if no target answers
    is_beta = BETA_HEADER in socket.headers.get("openai-beta", "") or (
        BETA_SUBPROTOCOL in socket.scope["subprotocols"]
    )
    is_riva = any(name.startswith(RIVA_SUBPROTOCOL) for name in socket.scope["subprotocols"])
    secret = gateway.secrets.find((authorization(socket) or "")[len(SCHEME) :].strip())
    settings = RealtimeSettings() if secret is None else secret.settings
    if not settings.model or "model" in socket.query_params:
        settings = replace(settings, model=model)
    if is_riva:
        settings = riva.updated(settings, RIVA_DEFAULTS)
    async with accepted(socket) as peer:
        session = RealtimeConnection(gateway, peer, settings, take_session, is_beta=is_beta, is_riva=is_riva)
        await session.run()
