"""One file that a server transcribes: updates while it runs, and the result."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial

import grpc.aio

from specwhisper.audio.damage import Warnings
from specwhisper.audio.decode import decode_file
from specwhisper.audio.recording import MEL_BINS
from specwhisper.audio.source import AudioSource
from specwhisper.audio.speech import placed
from specwhisper.audio.stated import check_stated_length
from specwhisper.audio.turns import Turn, in_turn
from specwhisper.errors import ServerFull, SpecWhisperError, TargetUnavailable
from specwhisper.observe import request_id
from specwhisper.options import DecodingOptions
from specwhisper.transcription.segments import Borders
from specwhisper.transcription.transcription import Transcription, losses
from specwhisper.types import Mode, Segment, TimeOrder
from specwhisper.wire.status import ended_by_server, error_from_rpc, has_broken
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.attempts import Attempts
from specwhisper_client.codec import config_to_proto
from specwhisper_client.exchange import exchange
from specwhisper_client.received import Received, only_names_models
from specwhisper_client.servers import Connection, Servers
from specwhisper_client.updates import PathLike, Update

logger = logging.getLogger(__name__)

RESUME_TIMEOUT_S = 60.0


class FileTranscription:
    """A file being transcribed: iterate over it once, then read ``result``.

    Parameters
    ----------
    servers : connections to the servers; if one is lost, the recording resumes at another.
    resume_timeout_s : seconds for which it looks for another server after a loss.

    Attributes
    ----------
    num_resumes : how often the recording was resumed by another call.
    """

    def __init__(
        self,
        path: PathLike,
        options: DecodingOptions,
        *,
        mode: Mode | None,
        gamma: int | None,
        interim_results: bool,
        with_statistics: bool,
        max_duration_s: float | None,
        servers: Servers,
        resume_timeout_s: float = RESUME_TIMEOUT_S,
    ) -> None:
        self._path = path
        self._options = options
        self._mode = mode
        self._gamma = gamma
        self._interim_results = interim_results
        self._with_statistics = with_statistics
        self._max_duration_s = max_duration_s
        self._servers = servers
        self._attempts = Attempts(servers, resume_timeout_s)
        self._request_id = request_id.current_request_id()  # the same for all calls
        self._received = Received()
        self._segments: list[Segment] = []
        self._resume_point: pb.ResumePoint | None = None
        self._warnings = Warnings(is_strict=options.strict)
        self._result: Transcription | None = None
        self.num_resumes = 0

    @property
    def result(self) -> Transcription:
        """The transcription, after the last update."""
        if self._result is None:
            raise SpecWhisperError(
                f"The transcription of '{self._path}' has not ended: take its updates first."
            )
        return self._result

    async def __aiter__(self) -> AsyncGenerator[Update]:
        """Transcribe the file; leaving the loop early ends the call."""
        started_s = time.perf_counter()
        options = self._options
        decode = partial(decode_file, self._path, self._max_duration_s, self._warnings, options)
        if self._max_duration_s is not None:
            await in_turn(Turn(), check_stated_length, self._path, self._max_duration_s)
        source = await AudioSource.open(decode, options.vad)
        speech = source.speech
        if speech is not None and not speech.spans:  # servers refuse recordings without audio
            silent = Transcription.without_speech(self._options, speech.duration_s)
            self._result = replace(silent, warnings=self._warnings.sentences)
            yield Update((), duration_s=speech.duration_s, statistics=self._result.stats)
            return
        options = options.for_pcm()
        if not source.fits_one_window and not options.log_mel_max:
            maxima = await source.log_mel_max(MEL_BINS, options.padding)
            options = replace(options, log_mel_max=maxima)
        config = pb.StreamingRecognitionConfig(
            config=config_to_proto(options, self._mode, self._gamma, is_container=False),
            interim_results=self._interim_results,
            with_resume_points=True,
            with_statistics=self._with_statistics,
        )
        borders, order = Borders(), TimeOrder()
        async with aclosing(self._updates(config, source)) as updates:
            async for update in updates:
                segments = order(placed(borders(update.segments), speech))
                self._segments += segments
                yield replace(update, segments=segments, duration_s=source.duration_s)
        received = self._received
        if received.model is None:
            raise SpecWhisperError(
                f"The server at {self._servers.address} ended the call without naming its model."
            )
        self._result = Transcription(
            segments=tuple(self._segments),
            language=received.language,
            language_name=received.language_name,
            language_probs=received.language_probs,
            duration_s=received.received_s if speech is None else speech.duration_s,
            duration_after_vad_s=None if speech is None else speech.speech_s,
            stats=received.statistics,
            model=received.model,
            options=self._options,
            elapsed_s=time.perf_counter() - started_s,
            warnings=(*self._warnings.sentences, *losses(self._options, received.received_s)),
        )

    async def _updates(
        self, config: pb.StreamingRecognitionConfig, source: AudioSource
    ) -> AsyncGenerator[Update]:
        """Run calls until the whole recording is final."""
        attempts = self._attempts
        while True:
            try:
                async with (
                    attempts.connection() as connection,
                    aclosing(self._call(connection, config, source)) as updates,
                ):
                    async for update in updates:
                        yield update
                return
            except grpc.aio.AioRpcError as rpc_error:
                error = error_from_rpc(rpc_error, attempts.address)
                await attempts.retry(error, may_wait=self._may_resume(error, rpc_error))
                self.num_resumes += self._received.model is not None
                log = {"request": self._request_id, "server": attempts.address, "error": str(error)}
                logger.info("server lost", extra=log)

    async def _call(
        self, connection: Connection, config: pb.StreamingRecognitionConfig, source: AudioSource
    ) -> AsyncGenerator[Update]:
        """Run one call, from the last resume point on."""
        self._received.begin_call()
        if self._resume_point is not None:
            config.resume_point.CopyFrom(self._resume_point)
        metadata = ((request_id.KEY, self._request_id),)
        call = TranscriptionStub(connection.channel).StreamingRecognize(metadata=metadata)
        audio = source.pieces(config.resume_point.start_sample)
        async with aclosing(exchange(call, config, audio, connection.window)) as responses:
            async for response in responses:
                update = self._received.add(response)
                if only_names_models(response):
                    continue  # it has no text, and must not make the caller remove any
                if response.HasField("resume_point"):
                    self._resume_point = response.resume_point
                if update.segments or response.HasField("resume_point"):
                    self._attempts.progressed()
                yield update

    def _may_resume(self, error: SpecWhisperError, rpc_error: grpc.aio.AioRpcError) -> bool:
        """Return whether the known servers may soon resume the recording."""
        if isinstance(error, ServerFull):  # it may still count the lost call
            return self._received.model is not None
        # If no server ever answered, the address is probably wrong.
        was_there = self._received.model is not None or has_broken(rpc_error)
        return was_there and not self._has_given_up(error, rpc_error)

    def _has_given_up(self, error: SpecWhisperError, rpc_error: grpc.aio.AioRpcError) -> bool:
        """Return whether the only server has searched for a target and found none."""
        return self._servers.is_one and isinstance(error, TargetUnavailable) and ended_by_server(rpc_error)
