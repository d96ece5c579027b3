"""Transcribe recordings with a draft server from Python.

async with TranscriptionClient("127.0.0.1:50051") as client:
    result = await client.transcribe_file("talk.mp3", language="en")
    print(result, result.stats.acceptance_rate)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any, Self

import grpc.aio

from specwhisper.audio.damage import Warn, Warnings
from specwhisper.audio.decode import decode_file
from specwhisper.audio.speech import SpeechMap, find_speech, only_speech, placed
from specwhisper.options import DecodingOptions, options_from
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.selection import Selection, VadOptions
from specwhisper.transcription.transcription import Transcription, losses
from specwhisper.types import Mode, TimeOrder
from specwhisper.wire import CLIENT_PROTOCOL_VERSION, check_protocol, flac
from specwhisper.wire.codec import statistics_from_proto
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.codec import (
    config_to_proto,
    model_from_proto,
    seconds,
    segments_from_proto,
    server_from_proto,
)
from specwhisper_client.file_transcription import RESUME_TIMEOUT_S, FileTranscription
from specwhisper_client.servers import DEFAULT_SERVER, Attempts, Servers
from specwhisper_client.updates import PathLike, ServerInfo

GET_MODEL_DEADLINE_S = 10.0


class TranscriptionClient:
    """Transcribes recordings on draft servers, many at once.

    Connections open on first use. Methods take decoding options as an object, by name, or both: a name then
    replaces the object's value. Names and meanings are those of ``SpeculativeWhisper.transcribe``.

    Parameters
    ----------
    server : ``HOST:PORT`` of a draft server, or several with commas between. Sessions are spread over all
        addresses of all names. If a server is lost, its sessions resume at another one.
    credentials : encryption, and the token that identifies the caller.
    resume_timeout_s : seconds for which a recording looks for another server after it has lost its own.

    Attributes
    ----------
    servers : the connections; live streams can share them.
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
        """Close the connections and cancel the calls that still run."""
        await self.servers.close()

    async def get_model(self) -> ServerInfo:
        """Return the server's models and the limits of a request."""
        reply, address = await self._request("GetModel", pb.GetModelRequest(), GET_MODEL_DEADLINE_S)
        check_protocol(
            f"The draft server at {address}",
            reply.protocol_version,
            reply.software_version,
            here="this client",
            own=CLIENT_PROTOCOL_VERSION,
        )
        return server_from_proto(reply)

    async def transcribe_file(
        self,
        path: PathLike,
        options: DecodingOptions | None = None,
        *,
        mode: Mode | None = None,
        gamma: int | None = None,
        **named: Any,
    ) -> Transcription:
        """Transcribe a file of any length and format.

        Parameters
        ----------
        options, named : decoding options, such as ``language="en"`` or ``word_timestamps=True``.
        mode, gamma : how draft and target work together; by default the server's own.
        """
        transcription = self.stream_file(
            path, options, mode=mode, gamma=gamma, interim_results=False, **named
        )
        async for _ in transcription:
            pass
        return transcription.result

    def stream_file(
        self,
        path: PathLike,
        options: DecodingOptions | None = None,
        *,
        mode: Mode | None = None,
        gamma: int | None = None,
        interim_results: bool = True,
        with_statistics: bool = False,
        max_duration_s: float | None = None,
        **named: Any,
    ) -> FileTranscription:
        """Start to transcribe a file; iterate over the returned object for updates.

        Parameters
        ----------
        options, named, mode, gamma : as :meth:`transcribe_file` takes them.
        interim_results : whether updates also have text that may still change, or only final segments.
        with_statistics : whether every update has statistics; the last one always has.
        max_duration_s : a longer recording is refused.
        """
        return FileTranscription(
            path,
            options_from(options or {}, named),
            mode=mode,
            gamma=gamma,
            interim_results=interim_results,
            with_statistics=with_statistics,
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
        **named: Any,
    ) -> Transcription:
        """Transcribe a short file, passed as bytes, in one message."""
        options = options_from(options or {}, named)
        started_s = time.perf_counter()
        speech, warnings = None, Warnings(is_strict=options.strict)
        if options.vad is not None:
            speech, audio = await asyncio.to_thread(_speech_of, audio, options.vad, warnings, options)
            if not speech.spans:
                silent = Transcription.without_speech(options, speech.duration_s)
                return replace(silent, warnings=warnings.sentences)
        sent = options if speech is None else options.for_pcm()
        config = config_to_proto(sent, mode, gamma, is_container=True)
        reply, _ = await self._request("Recognize", pb.RecognizeRequest(config=config, audio=audio))
        return Transcription(
            segments=TimeOrder()(placed(segments_from_proto(reply.results), speech)),
            language=reply.language.code,
            language_name=reply.language.name,
            language_probs=dict(reply.language.probabilities),
            duration_s=seconds(reply.audio_duration) if speech is None else speech.duration_s,
            duration_after_vad_s=None if speech is None else speech.speech_s,
            stats=statistics_from_proto(reply.statistics),
            model=model_from_proto(reply.model),
            options=options,
            elapsed_s=time.perf_counter() - started_s,
            warnings=(
                *warnings.sentences,
                *reply.warnings,
                *losses(options, seconds(reply.audio_duration)),
            ),
        )

    async def _request(self, method: str, request: Any, timeout_s: float | None = None) -> tuple[Any, str]:
        """Call one server after another; return the first reply and its address."""
        attempts = Attempts(self.servers)
        while True:
            async with attempts.connection(is_session=timeout_s is None) as connection:
                try:
                    call = getattr(TranscriptionStub(connection.channel), method)
                    return await call(request, timeout=timeout_s), connection.address
                except grpc.aio.AioRpcError as error:
                    await attempts.retry(error_from_rpc(error, connection.address))


def _speech_of(audio: bytes, vad: VadOptions, warn: Warn, selection: Selection) -> tuple[SpeechMap, bytes]:
    """Return the places of a file's speech, and that speech as FLAC; both are empty without speech."""

    def decode() -> Iterator[bytes]:
        return decode_file(BytesIO(audio), None, warn, selection)

    speech = find_speech(decode(), vad)
    pcm = b"".join(only_speech(decode, speech))
    return speech, flac.encode(pcm) if pcm else b""
