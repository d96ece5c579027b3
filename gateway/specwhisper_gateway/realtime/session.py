"""A realtime session: client events in, server events out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from openai.types.realtime import InputAudioBufferClearedEvent
from pydantic import BaseModel

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.errors import InvalidRequest
from specwhisper.transcription.hints.feed import HintFeed
from specwhisper.types import SAMPLE_RATE, TimedHint
from specwhisper_client.streaming import StreamingClient
from specwhisper_gateway.errors import InvalidEvent
from specwhisper_gateway.realtime import riva
from specwhisper_gateway.realtime.commands import (
    Append,
    Clear,
    Command,
    CommitAudio,
    Done,
    UpdateSession,
    command_of,
    event_id_of,
    read_event,
)
from specwhisper_gateway.realtime.settings import RealtimeSettings, check_language, known_part, nested
from specwhisper_gateway.realtime.turn import Items, RealtimeTurn
from specwhisper_gateway.state import Gateway, TakeSession
from specwhisper_gateway.transport.messages import error_event, new_id, warning_event
from specwhisper_gateway.transport.sockets import Peer, stall_timeout

MAX_TURNS = 4  # waiting for their transcription; a client that commits more often has to wait


@dataclass(slots=True)
class _Running:
    """A turn and its transcription.

    Attributes
    ----------
    num_samples : audio so far, at the client's sample rate.
    work : the task that reads the transcription's updates, once it runs.
    """

    turn: RealtimeTurn
    stream: StreamingClient
    sample_rate: int
    num_samples: int = 0
    is_cleared: bool = False
    work: asyncio.Task[None] | None = None

    @property
    def length_s(self) -> float:
        return self.num_samples / self.sample_rate

    def clear(self) -> None:
        """Discard the turn."""
        self.is_cleared = True
        if self.work is not None:
            self.work.cancel()


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
        self._items = Items(is_beta, keeps_transcript=is_riva)
        self._is_riva = is_riva
        self._pieces = riva.WavPieces()
        self._rest = b""  # of a sample that the next piece of audio completes
        self._previous_s = 0.0  # audio of the turns before the open one
        self._hints = HintFeed()
        self._open: _Running | None = None  # the turn that receives audio
        self._waiting: asyncio.Queue[_Running | None] = asyncio.Queue(MAX_TURNS)  # None: no more audio

    async def run(self) -> None:
        """Answer until the client disconnects or the session fails."""
        if self._is_riva:
            await self._peer.send(riva.created_event())
        else:
            await self._send_session("created", is_flat=self._items.is_beta)
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._transcribe())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def report_error(self, error: BaseException, event_id: str | None = None) -> None:
        """Send an error, with the id of the client's event that caused it."""
        await self._peer.send(error_event(error, event_id))

    async def _read(self) -> None:
        async for frame in self._peer.frames():
            event: dict[str, Any] = {}
            try:
                event = await read_event(frame)
                await self._follow(command_of(event))
            except InvalidRequest as error:
                await self.report_error(error, event_id_of(event))

    async def _follow(self, command: Command) -> None:
        match command:
            case Append(audio, ends_utterance):
                if self._is_riva:
                    audio = self._pieces.samples_of(audio)
                samples, self._rest = self._settings.audio_format.decode(self._rest + audio)
                await self._append(samples)
                if ends_utterance:
                    self._pieces.finish()
                    await self._end_turn()
            case CommitAudio() if self._is_riva:
                pass  # the client commits every piece
            case Done():
                if not self._is_riva:
                    raise InvalidEvent("input_audio_buffer.done is an event of Riva's client.", "type")
                await self._end_turn()
                await self._waiting.put(None)
            case CommitAudio():
                if self._open is None:
                    raise InvalidEvent(
                        "Error committing input audio buffer: it is empty.",
                        code="input_audio_buffer_commit_empty",
                    )
                await self._end_turn()
            case Clear():
                await self._clear()
                await self._send(
                    InputAudioBufferClearedEvent(type="input_audio_buffer.cleared", event_id=new_id("event"))
                )
            case TimedHint():
                self._hints.put(command)
                self._send_hints()
            case UpdateSession():
                await self._update(command)

    async def _append(self, pcm: bytes) -> None:
        if not pcm:
            return
        running = self._open or await self._begin_turn()
        # One second at a time: other clients wait while a piece is resampled.
        for piece in _pieces(pcm, running.sample_rate * BYTES_PER_SAMPLE):
            async with stall_timeout():
                await running.stream.send(piece)
            running.num_samples += len(piece) // BYTES_PER_SAMPLE
            await asyncio.sleep(0)

    async def _begin_turn(self) -> _Running:
        self._take_session()
        settings = self._settings
        stream = StreamingClient(
            self._gateway.config.server,
            settings.options(),
            endpointing=settings.endpointing,
            sample_rate=settings.audio_format.rate,
            interim_results=settings.interim_results,
            servers=self._gateway.client.servers,
        )
        turn = RealtimeTurn(
            self._items,
            self._previous_s,
            detects_speech=settings.endpointing is not None,
            interim_results=settings.interim_results,
        )
        running = _Running(turn, stream, settings.audio_format.rate)
        async with stall_timeout():
            await self._waiting.put(running)
        self._open = running
        self._hints.restart()
        self._send_hints()
        return running

    def _send_hints(self) -> None:
        """Send the open turn new hints, whose times count the audio before the turn too."""
        if self._open is not None:
            for hint in self._hints.take():
                start_s = hint.start_sample / SAMPLE_RATE - self._previous_s
                self._open.stream.hint(hint.text, max(0.0, start_s))

    async def _end_turn(self) -> None:
        """Complete the open turn; further audio begins another one."""
        self._rest = b""
        if (running := self._open) is None:
            return
        self._close_turn(running)
        await self._send(*running.turn.commit(running.length_s))
        async with stall_timeout():
            await running.stream.finish()

    async def _clear(self) -> None:
        """Discard audio that is not committed; what is committed is still completed."""
        self._rest = b""
        if (running := self._open) is None:
            return
        if not running.turn.discard():
            self._drop(running)
            return
        self._close_turn(running)
        async with stall_timeout():
            await running.stream.finish()

    def _drop(self, running: _Running) -> None:
        """End the open turn at once."""
        self._close_turn(running)
        running.clear()

    def _close_turn(self, running: _Running) -> None:
        """Let further audio begin another turn."""
        self._open = None
        self._previous_s += running.length_s

    async def _update(self, command: UpdateSession) -> None:
        ignored: list[InvalidEvent] = []
        if self._is_riva:
            settings = riva.updated(self._settings, command.session)
        else:
            session, ignored = known_part(nested(command.session) if command.is_flat else command.session)
            settings = self._settings.updated(session)
        if settings.model != self._settings.model:
            name = await self._gateway.model_names.resolve(settings.model)
            settings = replace(settings, model=name)
        for language in set(settings.languages) - set(self._settings.languages):
            await check_language(self._gateway.client, language)
        if settings != self._settings:
            await self._end_turn()  # a running transcription keeps its settings
        self._settings = settings
        if ignored:
            await self._peer.send(warning_event(ignored, command.event_id))
        await self._send_session("updated", is_flat=command.is_flat)

    async def _transcribe(self) -> None:
        """Run the turns one by one.

        A client has one session on the draft server, however it commits.
        """
        while True:
            running = await self._waiting.get()
            if running is None:
                await self._peer.send(riva.last_event(self._items.transcript))
                continue
            async with running.stream:
                if running.is_cleared:
                    continue
                running.work = asyncio.create_task(self._run(running))
                try:
                    await asyncio.wait((running.work,))
                finally:
                    running.work.cancel()
                    await asyncio.gather(running.work, return_exceptions=True)
                if not running.work.cancelled():
                    running.work.result()

    async def _run(self, running: _Running) -> None:
        turn = running.turn
        try:
            async with aclosing(aiter(running.stream)) as updates:
                async for update in updates:
                    await self._send(*turn.on_update(update))
            await self._send(*turn.end(running.length_s))
        except InvalidRequest as error:
            await self._send(*turn.fail(error))
            await self.report_error(error)
            if self._open is running:
                self._drop(running)
        finally:
            self._gateway.metrics.count(running.stream.statistics, running.length_s)

    async def _send_session(self, what: str, *, is_flat: bool) -> None:
        facts = {"id": self._id, "object": "realtime.transcription_session"}
        described = self._settings.describe_flat() if is_flat else self._settings.describe()
        kind = f"transcription_session.{what}" if is_flat else f"session.{what}"
        await self._peer.send({"type": kind, "event_id": new_id("event"), "session": facts | described})

    async def _send(self, *events: BaseModel) -> None:
        await self._peer.send(*(event.model_dump(exclude_unset=True) for event in events))


def _pieces(pcm: bytes, num_bytes: int) -> Iterator[bytes]:
    for start in range(0, len(pcm), num_bytes):
        yield pcm[start : start + num_bytes]
