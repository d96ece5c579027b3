"""One file that a server transcribes: updates while it runs, and the result."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

import grpc.aio

from specwhisper.audio.damage import Warnings
from specwhisper.audio.decode import check_stated_length, decode_file
from specwhisper.audio.recording import MEL_BINS
from specwhisper.audio.source import AudioSource
from specwhisper.audio.speech import placed
from specwhisper.audio.turns import Turn, in_turn
from specwhisper.errors import RETRY_ELSEWHERE, ServerDraining, ServerFull, SpecWhisperError
from specwhisper.options import DecodingOptions
from specwhisper.transcription.segments import Borders
from specwhisper.transcription.transcription import Transcription, losses
from specwhisper.types import Mode, Segment, TimeOrder
from specwhisper.wire.status import ended_by_server, has_broken
from specwhisper.wire.v1 import transcription_pb2 as pb
from specwhisper_client.calls import Calls
from specwhisper_client.codec import config_to_proto
from specwhisper_client.servers import Servers
from specwhisper_client.updates import PathLike, Update

RESUME_TIMEOUT_S = 60.0


class FileTranscription(Calls):
    """A file being transcribed: iterate over it once, then read ``result``.

    Parameters
    ----------
    servers : connections to the servers; if one is lost, the recording resumes at another.
    resume_timeout_s : seconds for which it looks for another server after a loss.
    settings : which responses the server sends.

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
        max_duration_s: float | None,
        servers: Servers,
        resume_timeout_s: float = RESUME_TIMEOUT_S,
        **settings: Any,
    ) -> None:
        super().__init__(servers)
        self._path = path
        self._options = options
        self._mode = mode
        self._gamma = gamma
        self._settings = settings
        self._max_duration_s = max_duration_s
        self._resume_timeout_s = resume_timeout_s
        self._segments: list[Segment] = []
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
            with_resume_points=True,
            **self._settings,
        )
        borders, order = Borders(), TimeOrder()
        async with aclosing(self._updates(config, source)) as updates:
            async for update in updates:
                segments = order(placed(borders(update.segments), speech))
                self._segments += segments
                yield replace(update, segments=segments, duration_s=source.duration_s)
        if self.model is None:
            raise SpecWhisperError(
                f"The server at {self._servers.address} ended the call without naming its model."
            )
        self._result = self.transcription(
            self._segments,
            duration_s=self.received_s if speech is None else speech.duration_s,
            duration_after_vad_s=None if speech is None else speech.speech_s,
            options=self._options,
            elapsed_s=time.perf_counter() - started_s,
            warnings=(*self._warnings.sentences, *losses(self._options, self.received_s)),
        )

    async def _updates(
        self, config: pb.StreamingRecognitionConfig, source: AudioSource
    ) -> AsyncGenerator[Update]:
        """Run calls until the whole recording is final."""

        def request() -> tuple[pb.StreamingRecognitionConfig, AsyncIterator[bytes]]:
            return config, source.pieces(config.resume_point.start_sample)

        while True:
            try:
                async with aclosing(self._run_call(request)) as responses:
                    async for response, update in responses:
                        has_point = response.HasField("resume_point")
                        if has_point:
                            config.resume_point.CopyFrom(response.resume_point)
                        if update.segments or has_point:
                            self._attempts.progressed()
                        yield update
                return
            except RETRY_ELSEWHERE as error:
                await self._retry(error, self._resume_timeout_s if self._may_resume(error) else 0.0)
                self.num_resumes += self.model is not None

    def _may_resume(self, error: SpecWhisperError) -> bool:
        """Return whether the known servers may soon resume the recording."""
        cause = error.__cause__
        if not isinstance(cause, grpc.aio.AioRpcError):
            return False
        if self.model is None:  # if no server ever answered, the address is probably wrong
            return has_broken(cause)
        # A full server may still count the lost call. Others have searched for a target and found none.
        return isinstance(error, ServerFull | ServerDraining) or not ended_by_server(cause)
