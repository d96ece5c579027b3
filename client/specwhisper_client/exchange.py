"""One streaming call: audio goes up while text comes down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from math import inf
from typing import Any

import grpc
import grpc.aio

from specwhisper.rpc.channels import with_true_status
from specwhisper.rpc.next_item import NextItem
from specwhisper.wire import SILENCE_S, WELCOME_S
from specwhisper.wire.v1 import transcription_pb2 as pb

NUM_PARTS = 3  # of a silence
HEARTBEAT = pb.StreamingRecognizeResponse(heartbeat=True)  # and nothing else


async def exchange(
    call: Any, config: pb.StreamingRecognitionConfig, audio: AsyncIterator[bytes]
) -> AsyncGenerator[pb.StreamingRecognizeResponse]:
    """Give the responses of a ``StreamingRecognize`` call while sending what it transcribes.

    Signs of life are asked for and not given on. A server that has shown that it gives them and falls silent
    then, or that says nothing at all, ends the call with the error of a lost connection: its connection may
    well live on, since gRPC's threads answer pings even where nothing else moves.

    Audio is taken only as fast as the server takes it. If it fails, its error ends the call and comes out
    here; if the call fails, the call's does. Closing the iterator cancels the call.
    """
    config.with_heartbeats = config.with_statistics = True
    call = with_true_status(call)
    gives_signs, silence_s = False, WELCOME_S
    sender = asyncio.create_task(_send(call, config, audio))
    try:
        responses = aiter(call)
        while (response := await _next(responses, silence_s)) is not None:
            gives_signs |= response.heartbeat  # a server of an older version never does
            silence_s = SILENCE_S if gives_signs else inf
            if response != HEARTBEAT:
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
    """Give the server's next word, ``None`` behind the last."""
    async with NextItem(responses) as pending:
        # In parts: where this process itself stood still, only one of them has passed.
        for _ in range(NUM_PARTS):
            if await pending.wait(timeout_s=silence_s / NUM_PARTS):
                return pending.item
    raise grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(),
        details=f"nothing has come for {silence_s:g} s",
    )


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
