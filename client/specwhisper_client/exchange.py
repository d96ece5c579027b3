"""One streaming call: audio goes up while text comes down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio

from specwhisper.rpc.channels import with_true_status
from specwhisper.tasks import NextItem
from specwhisper.types import EndUtterance, TimedHint
from specwhisper.wire import SILENCE_S, WELCOME_S, codec, flac
from specwhisper.wire.pacing import PacedStream, SendWindow
from specwhisper.wire.v1 import transcription_pb2 as pb

NUM_PARTS = 3  # in which a time limit is waited for

Piece = bytes | TimedHint | EndUtterance  # what is sent


async def exchange(
    call: Any,
    config: pb.StreamingRecognitionConfig,
    audio: AsyncIterator[Piece],
    window: SendWindow | None = None,
) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
    """Send pieces through a ``StreamingRecognize`` call; yield responses.

    The call ends with the error of a lost connection if the server sends nothing, not even a heartbeat.
    gRPC's keepalive does not show this: its threads answer even if the server hangs.

    Audio is read as fast as the server accepts it and the connection's ``window`` has room. On a slow link it
    is sent as FLAC. An error of the audio or of the call is raised here. Closing the iterator cancels the
    call.
    """
    config.with_heartbeats = True
    call = with_true_status(call)
    silence_s = WELCOME_S
    paced = PacedStream(window or SendWindow())
    sender = asyncio.create_task(_send(call, config, audio, paced))
    try:
        responses = aiter(call)
        while (response := await _next(responses, silence_s)) is not None:
            silence_s = SILENCE_S
            if response.ping:
                paced.taken(response.ping)
                continue
            paced.on_other_response()
            if not response.heartbeat:
                yield response
    except asyncio.CancelledError:
        if sender.done() and not sender.cancelled() and (failure := sender.exception()):
            raise failure from None
        raise
    finally:
        call.cancel()
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)


async def _next(
    responses: AsyncIterator[pb.StreamingRecognizeResponse], silence_s: float
) -> pb.StreamingRecognizeResponse | None:
    """Return the server's next response; ``None`` after the last."""
    async with NextItem(responses) as pending:
        # In parts: if this process itself was stopped, that counts as a single part.
        for _ in range(NUM_PARTS):
            if await pending.wait(timeout_s=silence_s / NUM_PARTS):
                return pending.item
    raise grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(),
        details=f"nothing has come for {silence_s:g} s",
    )


def _parts(piece: Piece, paced: PacedStream) -> Iterator[Piece]:
    """Yield a piece of audio in messages that are short for the link's rate."""
    if not isinstance(piece, bytes):
        yield piece
        return
    while piece:
        part = piece[: paced.piece_bytes(len(piece))]
        yield part
        piece = piece[len(part) :]


def _request(piece: Piece, *, as_flac: bool) -> pb.StreamingRecognizeRequest:
    if isinstance(piece, EndUtterance):
        return pb.StreamingRecognizeRequest(end_utterance=pb.EndUtterance())
    if isinstance(piece, TimedHint):
        return pb.StreamingRecognizeRequest(hint=codec.hint_to_proto(piece))
    if as_flac:
        return pb.StreamingRecognizeRequest(flac_content=flac.encode(piece))
    return pb.StreamingRecognizeRequest(audio_content=piece)


async def _send(
    call: Any,
    config: pb.StreamingRecognitionConfig,
    audio: AsyncIterator[Piece],
    paced: PacedStream,
) -> None:
    try:
        await call.write(pb.StreamingRecognizeRequest(streaming_config=config, ping=paced.ping()))
        async for piece in audio:
            for part in _parts(piece, paced):
                async for ping in paced.pings_until_room():
                    await call.write(pb.StreamingRecognizeRequest(ping=ping))
                request = _request(part, as_flac=paced.is_slow)
                paced.window.sent(request.ByteSize())
                request.ping = paced.ping() if paced.window.needs_ping else 0
                await call.write(request)
        await call.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass  # the server has ended the call: reading the responses raises its error
    except Exception:
        call.cancel()
        raise
