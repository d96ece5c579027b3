"""Transcribe recordings with a draft server from Python.

async with TranscriptionClient("127.0.0.1:50051") as client:
    transcript = await client.transcribe_file("talk.mp3")
    print(transcript.text, transcript.statistics.acceptance_rate)
"""

from __future__ import annotations

import time
from typing import Any, Self

import grpc.aio

from specwhisper.errors import RETRY_ELSEWHERE
from specwhisper.options import DecodingOptions
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.types import Mode
from specwhisper.wire.codec import statistics_from_proto
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper.wire.versions import CLIENT, Protocols, check_protocol
from specwhisper_client.messages import (
    config_to_proto,
    model_from_proto,
    seconds,
    segments_from_proto,
    server_from_proto,
)
from specwhisper_client.servers import Servers
from specwhisper_client.transcript import PathLike, ServerInfo, Transcript
from specwhisper_client.transcription import RESUME_TIMEOUT_S, Transcription

DEFAULT_SERVER = "127.0.0.1:50051"
GET_MODEL_DEADLINE_S = 10.0


class TranscriptionClient:
    """Connections to draft servers; they open on first use and carry many transcriptions at once.

    Parameters
    ----------
    server : ``HOST:PORT`` of a draft server, or several with commas between. Sessions are spread over all
        addresses of all names, and go on at another server where one is lost.
    credentials : how it is reached, and who asks.
    resume_timeout_s : for how long a recording whose server is lost looks for another one.

    Attributes
    ----------
    servers : the connections, which live streams may use too.
    """

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        credentials: Credentials = OPEN,
        *,
        resume_timeout_s: float = RESUME_TIMEOUT_S,
    ) -> None:
        self.servers = Servers(server, credentials)
        self._resume_timeout_s = resume_timeout_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls that still run are cancelled."""
        await self.servers.close()

    async def get_model(self) -> ServerInfo:
        """Ask which models write the text, and what a request may ask of them."""
        reply, address = await self._ask("GetModel", pb.GetModelRequest(), GET_MODEL_DEADLINE_S)
        peer = f"The draft server at {address}"
        theirs = Protocols(reply.protocol_version, reply.oldest_protocol_version)
        if theirs.version:  # else it does not say
            check_protocol(peer, theirs, reply.software_version, here="this client", own=CLIENT)
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
            servers=self.servers,
            resume_timeout_s=self._resume_timeout_s,
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
        reply, _ = await self._ask("Recognize", pb.RecognizeRequest(config=config, audio=audio))
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

    async def _ask(self, method: str, request: Any, timeout_s: float | None = None) -> tuple[Any, str]:
        """Ask one server after the other; return the first answer, and where it came from."""
        attempts = self.servers.attempts()
        while True:
            async with attempts.connection(is_session=timeout_s is None) as connection:
                try:
                    ask = getattr(TranscriptionStub(connection.channel), method)
                    return await ask(request, timeout=timeout_s), connection.address
                except grpc.aio.AioRpcError as rpc_error:
                    error = error_from_rpc(rpc_error, connection.address)
                    is_final = not isinstance(error, RETRY_ELSEWHERE)
                    if is_final or not await attempts.failed(error):
                        raise error from rpc_error
