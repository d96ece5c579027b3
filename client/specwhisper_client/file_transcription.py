"""One file that a server transcribes: updates while it runs, and the result."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial

import grpc.aio

from specwhisper.audio.decode import decode_file
from specwhisper.audio.scan import MEL_BINS
from specwhisper.audio.source import AudioSource
from specwhisper.errors import RETRY_ELSEWHERE, ServerFull, SpecWhisperError, TargetUnavailable
from specwhisper.observe import request_id
from specwhisper.options import DecodingOptions
from specwhisper.rpc.failover import Failover
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.transcription.transcription import ModelInfo, Transcription
from specwhisper.types import Mode, Segment
from specwhisper.wire.status import ended_by_server, error_from_rpc, has_broken
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper.wire.v1.transcription_pb2_grpc import TranscriptionStub
from specwhisper_client.exchange import exchange
from specwhisper_client.messages import config_to_proto, model_from_proto, seconds, update_from_proto
from specwhisper_client.replies import PathLike, Update
from specwhisper_client.servers import Connection, Servers

logger = logging.getLogger(__name__)

RESUME_TIMEOUT_S = 60.0


class FileTranscription:
    """A file being transcribed: iterate over it once, then read ``result``.

    Parameters
    ----------
    servers : connections to the servers; if one is lost, the recording resumes at another.
    resume_timeout_s : seconds for which it looks for another server.

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
        max_duration_s: float | None,
        servers: Servers,
        resume_timeout_s: float = RESUME_TIMEOUT_S,
    ) -> None:
        self._path = path
        self._options = options
        self._mode = mode
        self._gamma = gamma
        self._interim_results = interim_results
        self._max_duration_s = max_duration_s
        self._servers = servers
        self._resume_timeout_s = resume_timeout_s
        self._result: Transcription | None = None
        self._request_id = request_id.current_request_id()  # the same for all calls
        self._resume_point = pb.Checkpoint()
        self._model: ModelInfo | None = None
        self._last = pb.StreamingRecognizeResponse()
        self._statistics = SpeculationStatistics()
        self._has_final_text = False
        self._received_s = 0.0
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
        source = await AudioSource.open(partial(decode_file, self._path, self._max_duration_s))
        options = self._options
        if not source.fits_one_window and not options.log_mel_max:
            options = replace(options, log_mel_max=await source.log_mel_max(MEL_BINS))
        config = pb.StreamingRecognitionConfig(
            config=config_to_proto(options, self._mode, self._gamma, is_container=False),
            interim_results=self._interim_results,
            with_checkpoints=True,
        )
        segments: list[Segment] = []
        async with aclosing(self._updates(config, source)) as updates:
            async for update in updates:
                segments += update.segments
                yield replace(update, duration_s=source.duration_s)
        if self._model is None:
            raise SpecWhisperError(
                f"The server at {self._servers.address} ended the call without naming its model."
            )
        last = self._last
        self._result = Transcription(
            segments=tuple(segments),
            language=last.language.code,
            language_name=last.language.name,
            language_probs=dict(last.language.probabilities),
            duration_s=seconds(last.audio_received),
            stats=self._statistics,
            model=self._model,
            options=self._options,
            elapsed_s=time.perf_counter() - started_s,
        )

    async def _updates(
        self, config: pb.StreamingRecognitionConfig, source: AudioSource
    ) -> AsyncGenerator[Update]:
        """Run calls until the whole recording is final."""
        failover, num_committed = Failover(self._resume_timeout_s), 0
        attempts = self._servers.attempts()
        while True:
            try:
                async with (
                    attempts.connection() as connection,
                    aclosing(self._call(connection, config, source)) as updates,
                ):
                    async for update in updates:
                        if self._statistics.num_committed > num_committed:
                            num_committed = self._statistics.num_committed
                            failover.progressed()
                            attempts.progressed()
                        yield update
                return
            except grpc.aio.AioRpcError as rpc_error:
                error = error_from_rpc(rpc_error, attempts.address)
                if not isinstance(error, RETRY_ELSEWHERE):
                    raise error from rpc_error
                if not await attempts.failed(error):
                    if not self._may_resume(error, rpc_error):
                        raise error from rpc_error
                    await failover.wait(error)
                self.num_resumes += self._model is not None
                log = {"request": self._request_id, "server": attempts.address, "error": str(error)}
                logger.info("server lost", extra=log)

    def _may_resume(self, error: SpecWhisperError, rpc_error: grpc.aio.AioRpcError) -> bool:
        """Return whether the known servers may resume the recording in a moment."""
        if isinstance(error, ServerFull):  # it may still count the call that was lost
            return bool(self._statistics.num_committed) and self._can_resume
        # If no server ever answered, the address is probably wrong.
        was_there = self._model is not None or has_broken(rpc_error)
        return was_there and self._can_resume and not self._has_given_up(error, rpc_error)

    @property
    def _can_resume(self) -> bool:
        """Whether no text would come twice (older servers send no resume points)."""
        return bool(self._resume_point.state) or not self._has_final_text

    def _has_given_up(self, error: SpecWhisperError, rpc_error: grpc.aio.AioRpcError) -> bool:
        """Return whether the only server has searched for a target and found none."""
        return self._servers.is_one and isinstance(error, TargetUnavailable) and ended_by_server(rpc_error)

    async def _call(
        self, connection: Connection, config: pb.StreamingRecognitionConfig, source: AudioSource
    ) -> AsyncGenerator[Update]:
        """Run one call, from the last resume point on."""
        config.checkpoint = self._resume_point.state
        metadata = ((request_id.KEY, self._request_id),)
        call = TranscriptionStub(connection.channel).StreamingRecognize(metadata=metadata)
        before = self._statistics
        async with aclosing(
            exchange(call, config, source.pieces(self._resume_point.start_sample))
        ) as responses:
            async for response in responses:
                if response.HasField("model"):
                    self._model = model_from_proto(response.model)
                if response.HasField("checkpoint"):
                    self._resume_point = response.checkpoint
                update = update_from_proto(response)
                # A call that resumes sends again the audio that was not final.
                self._received_s = max(self._received_s, update.received_s)
                if update.statistics is not None:
                    self._statistics = before.followed_by(update.statistics)
                self._has_final_text |= bool(update.segments)
                self._last = response
                yield replace(update, statistics=self._statistics, received_s=self._received_s)
