"""One live transcription of the page: PCM and wishes in, every change of the text out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from specwhisper.errors import InvalidRequest, MessageTooLarge
from specwhisper.live import LiveOptions, LivePosition
from specwhisper_client.streaming import LIVE_DECODING, StreamingClient
from specwhisper_gateway.errors import ClientGone, InvalidEvent
from specwhisper_gateway.live import reports
from specwhisper_gateway.live.messages import Change, Finish, Start, read_message
from specwhisper_gateway.state import Gateway
from specwhisper_gateway.transport.sockets import Peer, unless_stalled

MAX_PIECE_BYTES = 256 * 1024
RECONNECT_S = 10.0  # longer, and whoever reads the page should hear of it


class LiveSession:
    """Runs a transcription for the page."""

    def __init__(self, gateway: Gateway, peer: Peer) -> None:
        self._gateway = gateway
        self._peer = peer

    async def run(self) -> None:
        """Transcribe until all is told or the page is left."""
        frames = self._peer.frames()
        stream = self._begin(await _first(frames))
        begun_s = stream.received_s
        async with stream:
            listening = asyncio.create_task(self._listen(frames, stream))
            telling = asyncio.create_task(self._tell(stream))
            try:
                await asyncio.wait((listening, telling), return_when=asyncio.FIRST_COMPLETED)
                if not telling.done():
                    listening.result()
                    raise ClientGone("The page was left before its transcription had ended.")
                telling.result()
            finally:
                for task in (listening, telling):
                    task.cancel()
                await asyncio.gather(listening, telling, return_exceptions=True)
                self._gateway.metrics.count(stream.statistics, stream.received_s - begun_s)
        await self._peer.send({"type": "done"})

    async def tell_error(self, error: BaseException) -> None:
        """Tell what has ended it."""
        await self._peer.send(reports.failure(error))

    def _begin(self, start: Start) -> StreamingClient:
        return StreamingClient(
            self._gateway.config.server,
            replace(LIVE_DECODING, language=start.language or None),
            live=LiveOptions(
                step_ms=start.step_ms,
                policy=start.policy,
                position=LivePosition(
                    start.position.start_sample,
                    start.position.num_utterances,
                    tuple(start.position.final_tokens),
                ),
            ),
            mode=start.mode,
            gamma=start.gamma or None,
            sample_rate=start.sample_rate,
            added_latency_ms=start.added_latency_ms,
            continue_unverified=True,
            reconnect_s=RECONNECT_S,
            servers=self._gateway.client.servers,
        )

    async def _listen(self, frames: AsyncGenerator[str | bytes], stream: StreamingClient) -> None:
        has_finished = False
        async for frame in frames:
            if isinstance(frame, bytes):
                if has_finished:
                    raise InvalidEvent("Audio follows although the stream was said to be finished.")
                await _send(stream, frame)
                continue
            try:
                match await read_message(frame):
                    case Start():
                        raise InvalidEvent("The stream has begun already: change it, or open another one.")
                    case Change() as way if not has_finished:
                        stream.change(
                            mode=way.mode, gamma=way.gamma or None, added_latency_ms=way.added_latency_ms
                        )
                    case Finish() if not has_finished:
                        has_finished = True
                        async with unless_stalled():
                            await stream.finish()
            except InvalidRequest as error:
                await self.tell_error(error)

    async def _tell(self, stream: StreamingClient) -> None:
        model = None
        async with aclosing(aiter(stream)) as updates:
            async for update in updates:
                if stream.model is not None and stream.model != model:
                    model = stream.model
                    await self._peer.send(reports.ready(model))
                await self._peer.send(reports.update(update, stream.position))


async def _first(frames: AsyncGenerator[str | bytes]) -> Start:
    async for frame in frames:
        if isinstance(frame, str) and isinstance(message := await read_message(frame), Start):
            return message
        raise InvalidEvent("A stream begins with a message of type start, and this one did not.")
    raise ClientGone("The page was left before it began.")


async def _send(stream: StreamingClient, pcm: bytes) -> None:
    if len(pcm) > MAX_PIECE_BYTES:
        raise MessageTooLarge(
            f"A piece of audio has {len(pcm)} bytes: at most {MAX_PIECE_BYTES} are taken in a message."
        )
    async with unless_stalled():
        await stream.send(pcm)
