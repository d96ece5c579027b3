"""Requests of complete sessions, and bare calls that can be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc.aio

from experiments.chaos.clients import Client
from experiments.chaos.requests import PLAIN, FileRequest, LiveRequest
from experiments.common.models.scripted import recording
from experiments.common.servers.clients import LOG_MEL_MAX
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import with_true_status
from specwhisper.types import Mode
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.codec import config_to_proto

OPTIONS = DecodingOptions.greedy(language="en", log_mel_max=LOG_MEL_MAX)
PIECE_BYTES = 32_000
NO_PROXY = ("grpc.enable_http_proxy", 0)
TAKES_LITTLE = (("grpc.http2.lookahead_bytes", 64), ("grpc.http2.bdp_probe", 0))


def recorded(length_s: float, audio_seed: int = 0) -> FileRequest:
    """Ask for a recording's text."""
    return FileRequest(PLAIN, Mode.FULL, None, length_s, audio_seed, start_after_s=0.0)


def spoken(speed: float = 2.0, start_after_s: float = 0.0) -> LiveRequest:
    """Speak so many times as fast as people do, from a moment on."""
    return LiveRequest(
        Mode.FULL,
        has_utterances=True,
        continue_unverified=False,
        start_after_s=start_after_s,
        speed=speed,
    )


def violations_of(clients: Iterable[Client]) -> tuple[str, ...]:
    """Return the violations in the clients' logs."""
    return tuple(f"{one.log.name}: {violation}" for one in clients for violation in one.violations())


async def all_begun(sessions: Sequence[Client]) -> None:
    """Wait until something was committed to each."""
    while not all(session.has_begun for session in sessions):
        await asyncio.sleep(0.005)


def first_request(mode: Mode | None = None) -> pb.StreamingRecognizeRequest:
    """Return what a stream begins with."""
    config = config_to_proto(OPTIONS, mode, None, is_container=False)
    streaming = pb.StreamingRecognitionConfig(config=config, interim_results=True)
    return pb.StreamingRecognizeRequest(streaming_config=streaming)


@asynccontextmanager
async def bare_call(
    address: str,
    mode: Mode | None = None,
    *,
    length_s: float = 0.0,
    reads: bool = True,
    options: tuple[tuple[str, int], ...] = (),
) -> AsyncIterator[Any]:
    """Open a call over a connection of its own, and send a recording into it.

    Parameters
    ----------
    reads : whether the answers are taken.
    """
    async with grpc.aio.insecure_channel(address, options=(NO_PROXY, *options)) as channel:
        call = with_true_status(TranscriptionStub(channel).StreamingRecognize())
        await call.write(first_request(mode))

        async def send() -> None:
            pcm = recording(length_s)
            for start in range(0, len(pcm), PIECE_BYTES):
                await call.write(pb.StreamingRecognizeRequest(audio_content=pcm[start : start + PIECE_BYTES]))

        async def read() -> None:
            while await call.read() is not grpc.aio.EOF:
                pass

        tasks = [asyncio.create_task(send())] + ([asyncio.create_task(read())] if reads else [])
        try:
            yield call
        finally:
            call.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def status_of(call: Any) -> tuple[grpc.StatusCode, dict[str, str]]:
    """Read a call to its end; return its status and trailing metadata."""
    with suppress(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
    trailing = await call.trailing_metadata() or ()
    return await call.code(), {key: str(value) for key, value in trailing}
