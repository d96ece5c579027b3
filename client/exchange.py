"""One streaming call: audio goes up while text comes down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc.aio

from specwhisper.wire.streams import with_true_status
from specwhisper.wire.v1 import transcription_pb2 as pb


async def exchange(
    call: Any, config: pb.StreamingRecognitionConfig, audio: AsyncIterator[bytes]
) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
    """Give the responses of a ``StreamingRecognize`` call while sending what it transcribes.

    Audio is taken only as fast as the server takes it. If it fails, its error ends the call and comes out
    here; if the call fails, the call's does. Closing the iterator cancels the call.
    """
    call = with_true_status(call)
    sender = asyncio.create_task(_send(call, config, audio))
    try:
        async for response in call:
            yield response
    except asyncio.CancelledError:
        if sender.done() and not sender.cancelled() and (failure := sender.exception()):
            raise failure from None
        raise
    finally:
        call.cancel()
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)


async def _send(call: Any, config: pb.StreamingRecognitionConfig, audio: AsyncIterator[bytes]) -> None:
    try:
        await call.write(pb.StreamingRecognizeRequest(streaming_config=config))
        async for pcm in audio:
            await call.write(pb.StreamingRecognizeRequest(audio_content=pcm))
        await call.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass  # the server has ended the call; who reads the responses learns why
    except Exception:
        call.cancel()
        raise
