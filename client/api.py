"""Transcribe recordings with a draft server from Python.

async with TranscriptionClient("127.0.0.1:50051") as client:
    transcript = await client.transcribe_file("talk.mp3")
    print(transcript.text, transcript.statistics.acceptance_rate)
"""

from __future__ import annotations

import time
from typing import Self

import grpc.aio

from client.messages import (
    config_to_proto,
    model_from_proto,
    seconds,
    segments_from_proto,
    server_from_proto,
    statistics_from_proto,
)
from client.transcript import PathLike, ServerInfo, Transcript
from client.transcription import Transcription
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode
from specwhisper.wire.channels import OPEN, Credentials, open_channel
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub

DEFAULT_SERVER = "127.0.0.1:50051"
GET_MODEL_DEADLINE_S = 10.0


class TranscriptionClient:
    """A connection to a draft server; it opens on first use and carries many transcriptions at once.

    Parameters
    ----------
    server : ``HOST:PORT`` of a draft server.
    credentials : how it is reached, and who asks.

    Attributes
    ----------
    channel : the connection, which live streams may use too.
    """

    def __init__(self, server: str = DEFAULT_SERVER, credentials: Credentials = OPEN) -> None:
        self._server = server
        self.channel = open_channel(server, credentials)
        self._stub = TranscriptionStub(self.channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls that still run are cancelled."""
        await self.channel.close()

    async def get_model(self) -> ServerInfo:
        """Ask which models write the text, and what a request may ask of them."""
        try:
            reply = await self._stub.GetModel(pb.GetModelRequest(), timeout=GET_MODEL_DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, self._server) from error
        return server_from_proto(reply)

    async def transcribe_file(
        self,
        path: PathLike,
        options: DecodingOptions | None = None,
        *,
        mode: Mode | None = None,
        gamma: int | None = None,
    ) -> Transcript:
        """Transcribe a file of any length and format; ``mode`` and ``gamma`` default to the server's own."""
        transcription = self.stream_file(path, options, mode=mode, gamma=gamma, interim_results=False)
        async for _ in transcription:
            pass
        return transcription.transcript

    def stream_file(
        self,
        path: PathLike,
        options: DecodingOptions | None = None,
        *,
        mode: Mode | None = None,
        gamma: int | None = None,
        interim_results: bool = True,
        max_duration_s: float | None = None,
    ) -> Transcription:
        """Transcribe a file and tell what is known meanwhile: iterate over what this returns.

        Without interim results, updates only come with final segments. A recording that is longer than
        ``max_duration_s`` seconds is refused.
        """
        return Transcription(
            path,
            options or DecodingOptions(),
            mode=mode,
            gamma=gamma,
            interim_results=interim_results,
            max_duration_s=max_duration_s,
            server=self._server,
            open_call=self._stub.StreamingRecognize,
            get_model=self.get_model,
        )

    async def recognize(
        self,
        audio: bytes,
        options: DecodingOptions | None = None,
        *,
        mode: Mode | None = None,
        gamma: int | None = None,
    ) -> Transcript:
        """Transcribe a short recording, sent whole: the bytes of a WAV, FLAC, MP3, ... file."""
        options = options or DecodingOptions()
        started_s = time.perf_counter()
        config = config_to_proto(options, mode, gamma, is_container=True)
        try:
            reply = await self._stub.Recognize(pb.RecognizeRequest(config=config, audio=audio))
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, self._server) from error
        return Transcript(
            segments=segments_from_proto(reply.results),
            language=reply.language.code,
            language_name=reply.language.name,
            model=model_from_proto(reply.model),
            statistics=statistics_from_proto(reply.statistics),
            duration_s=seconds(reply.audio_duration),
            elapsed_s=time.perf_counter() - started_s,
            language_probs=dict(reply.language.probabilities),
        )
