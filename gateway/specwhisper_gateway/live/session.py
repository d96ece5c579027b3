"""One live transcription of the page: audio in, every change of the text out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from specwhisper.errors import InvalidRequest, MessageTooLarge, SpecWhisperError
from specwhisper.options import DecodingOptions
from specwhisper.transcription.speakers import UtteranceSpeakers
from specwhisper.types import Segment
from specwhisper_client.live_transcription import Utterances
from specwhisper_client.streaming import StreamingClient
from specwhisper_gateway.errors import ClientGone, InvalidEvent
from specwhisper_gateway.live import reports
from specwhisper_gateway.live.messages import Change, Finish, Start, read_message
from specwhisper_gateway.state import Gateway, TakeSession
from specwhisper_gateway.transport.messages import error_event
from specwhisper_gateway.transport.sockets import Peer, stall_timeout

MAX_AUDIO_BYTES = 256 * 1024
RECONNECT_S = 10.0  # after it, the page shows that the connection is lost


class LiveConnection:
    """Runs a transcription for the page.

    Parameters
    ----------
    take_session : called when the page sends more than its settings.
    """

    def __init__(self, gateway: Gateway, peer: Peer, take_session: TakeSession) -> None:
        self._gateway = gateway
        self._peer = peer
        self._take_session = take_session

    async def run(self) -> None:
        """Transcribe until all text is sent or the page is closed."""
        frames = self._peer.frames()
        start = await _first(frames)
        second = await anext(frames, None)
        if second is None:
            raise ClientGone("The page was closed before it sent any audio.")
        self._take_session()
        speakers = self._speakers(start)
        stream = self._open(start, speakers)
        await self._check_languages(stream.options)
        start_s = stream.received_s
        async with stream:
            reading = asyncio.create_task(self._read(_chained(second, frames), stream))
            sending = asyncio.create_task(self._send(stream, speakers))
            try:
                await asyncio.wait((reading, sending), return_when=asyncio.FIRST_COMPLETED)
                if not sending.done():
                    reading.result()
                    raise ClientGone("The page was closed before its transcription ended.")
                sending.result()
            finally:
                for task in (reading, sending):
                    task.cancel()
                await asyncio.gather(reading, sending, return_exceptions=True)
                self._gateway.metrics.count(stream.statistics, stream.received_s - start_s)
        await self._peer.send({"type": "done"})

    async def report_error(self, error: BaseException) -> None:
        """Send an error to the page."""
        await self._peer.send(error_event(error))

    async def _check_languages(self, options: DecodingOptions) -> None:
        """Refuse languages that the target does not have, in a sentence without the hundred that it has."""
        asked = list(filter(None, (*options.languages, options.language)))
        try:
            known = (await self._gateway.client.get_model()).languages if asked else ()
        except SpecWhisperError:
            return  # without a target, the draft's text may continue
        for language in asked:
            if language not in known:
                raise InvalidEvent(
                    f"The target has no language '{language}': choose one of the list, or leave it empty.",
                    "languages",
                )

    def _speakers(self, start: Start) -> UtteranceSpeakers | None:
        found = self._gateway.config.speakers
        if found is None or not start.speakers:
            return None
        point = start.resume_point
        return found.live(start_sample=point.start_sample if point is not None else 0)

    def _open(self, start: Start, speakers: UtteranceSpeakers | None) -> StreamingClient:
        return StreamingClient(
            self._gateway.config.server,
            resume_point=start.resume_point.read() if start.resume_point is not None else None,
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

    async def _read(self, frames: AsyncGenerator[str | bytes], stream: StreamingClient) -> None:
        has_finished = False
        async for frame in frames:
            if isinstance(frame, bytes):
                if has_finished:
                    raise InvalidEvent("Audio arrived after the message 'finish'.")
                await _forward(stream, frame)
                continue
            try:
                match await read_message(frame):
                    case Start():
                        raise InvalidEvent(
                            "The stream has started already: send 'change', or open another connection."
                        )
                    case Change() as change if not has_finished:
                        stream.change(mode=change.mode, added_latency_ms=change.added_latency_ms)
                    case Finish() if not has_finished:
                        has_finished = True
                        async with stall_timeout():
                            await stream.finish()
            except InvalidRequest as error:
                await self.report_error(error)

    async def _send(self, stream: StreamingClient, speakers: UtteranceSpeakers | None) -> None:
        model, utterances = None, Utterances()
        complete: asyncio.Queue[Segment | None] = asyncio.Queue()
        naming = asyncio.create_task(self._send_speakers(complete, speakers))
        try:
            async with aclosing(aiter(stream)) as updates:
                async for update in updates:
                    if stream.model is not None and stream.model != model:
                        model = stream.model
                        await self._peer.send(reports.ready(model))
                    await self._peer.send(reports.update(update, stream.resume_point))
                    for utterance in utterances.add(update.segments):
                        complete.put_nowait(utterance)
            complete.put_nowait(None)
            await naming
        finally:
            naming.cancel()
            await asyncio.gather(naming, return_exceptions=True)

    async def _send_speakers(
        self, utterances: asyncio.Queue[Segment | None], speakers: UtteranceSpeakers | None
    ) -> None:
        """Send the speaker of each utterance, after its text."""
        while speakers is not None and (utterance := await utterances.get()) is not None:
            await self._peer.send(reports.speaker(await speakers.named(utterance)))


async def _first(frames: AsyncGenerator[str | bytes]) -> Start:
    async for frame in frames:
        if isinstance(frame, str) and isinstance(message := await read_message(frame), Start):
            return message
        raise InvalidEvent("A stream begins with a message of type 'start'; this one does not.")
    raise ClientGone("The page was closed before it started.")


async def _chained(first: str | bytes, others: AsyncGenerator[str | bytes]) -> AsyncGenerator[str | bytes]:
    yield first
    async for frame in others:
        yield frame


async def _forward(stream: StreamingClient, pcm: bytes) -> None:
    if len(pcm) > MAX_AUDIO_BYTES:
        raise MessageTooLarge(f"The audio message has {len(pcm)} bytes; the limit is {MAX_AUDIO_BYTES}.")
    async with stall_timeout():
        await stream.send(pcm)
