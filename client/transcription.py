"""One recording being transcribed by a server."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import grpc.aio

from client.exchange import exchange
from client.messages import (
    config_to_proto,
    model_from_proto,
    seconds,
    statistics_from_proto,
    update_from_proto,
)
from client.transcript import PathLike, ServerInfo, Transcript, Update
from specwhisper.audio.decode import decode_file
from specwhisper.audio.source import AudioSource
from specwhisper.errors import SpecWhisperError
from specwhisper.options import DecodingOptions
from specwhisper.types import Mode, Segment
from specwhisper.wire.status import error_from_rpc
from specwhisper.wire.v1 import transcription_pb2 as pb


class Transcription:
    """A file's transcription: iterate over its updates, then take the transcript; once only.

    Parameters
    ----------
    server : address of the server, for messages.
    open_call, get_model : start the streaming call, and ask the server what it works with.
    """

    def __init__(
        self,
        path: PathLike,
        options: DecodingOptions,
        *,
        mode: Mode | None,
        gamma: int | None,
        interim_results: bool,
        max_duration_s: float | None,
        server: str,
        open_call: Callable[[], Any],
        get_model: Callable[[], Awaitable[ServerInfo]],
    ) -> None:
        self._path = path
        self._options = options
        self._mode = mode
        self._gamma = gamma
        self._interim_results = interim_results
        self._max_duration_s = max_duration_s
        self._server = server
        self._open_call = open_call
        self._get_model = get_model
        self._transcript: Transcript | None = None

    @property
    def transcript(self) -> Transcript:
        """The whole transcript, once every update was taken."""
        if self._transcript is None:
            raise SpecWhisperError(
                f"The transcription of '{self._path}' has not ended: take its updates first."
            )
        return self._transcript

    async def __aiter__(self) -> AsyncGenerator[Update]:
        """Transcribe; leaving the loop early ends the call."""
        started_s = time.perf_counter()
        source = await AudioSource.open(partial(decode_file, self._path, self._max_duration_s))
        options = self._options
        if not source.fits_one_window and not options.log_mel_max:
            num_mel_bins = (await self._get_model()).log_mel_max_bins
            options = replace(options, log_mel_max=await source.log_mel_max(num_mel_bins))
        config = pb.StreamingRecognitionConfig(
            config=config_to_proto(options, self._mode, self._gamma, is_container=False),
            interim_results=self._interim_results,
        )
        segments: list[Segment] = []
        model, last = None, pb.StreamingRecognizeResponse()
        try:
            async with aclosing(exchange(self._open_call(), config, source.pieces())) as responses:
                async for last in responses:
                    if last.HasField("model"):
                        model = model_from_proto(last.model)
                    update = replace(update_from_proto(last), duration_s=source.duration_s)
                    segments += update.segments
                    yield update
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, self._server) from error
        if model is None:
            raise SpecWhisperError(f"The server at {self._server} ended the call without naming its model.")
        self._transcript = Transcript(
            segments=tuple(segments),
            language=last.language.code,
            language_name=last.language.name,
            model=model,
            statistics=statistics_from_proto(last.statistics),
            duration_s=seconds(last.audio_received),
            elapsed_s=time.perf_counter() - started_s,
            language_probs=dict(last.language.probabilities),
        )
