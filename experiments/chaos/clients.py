"""Clients that log all updates, and the text that a calm run would have returned."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import monotonic

from experiments.chaos import demo
from experiments.chaos.requests import DEMO, OPTIONS, FileRequest, LiveRequest, Request
from experiments.common.models.scripted import END
from experiments.common.models.speech import LENGTH_S, samples_of, speech, spoken_utterances, talk, words_of
from experiments.common.oracle import (
    ClientLog,
    ReceivedUpdate,
    Violation,
    live_violations,
    recording_violations,
)
from experiments.common.servers.clients import (
    LOG_MEL_MAX,
    expected_segments,
    recording_file,
    send_at_pace,
    write_wav,
)
from specwhisper.errors import SpecWhisperError, TargetUnavailable
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.types import Segment
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.updates import Update

STEP_MS = 300


class Client:
    """A client and its log.

    Parameters
    ----------
    folder : folder of the recordings.
    retries_opening : whether it starts again if it finds no server before its first update, as people do.

    Attributes
    ----------
    num_restarts : how often it started again.
    num_resumes : how often it resumed in another call, or tried to.
    """

    def __init__(self, request: Request, folder: Path, *, retries_opening: bool = False) -> None:
        self.request = request
        self.log = ClientLog(str(request))
        self.num_restarts = 0
        self.num_resumes = 0
        self._retries_opening = retries_opening
        self._folder = folder

    @property
    def has_begun(self) -> bool:
        """Whether the target has committed tokens, or the client has ended."""
        return bool(self.log.progress_s) or self.log.ended_s is not None

    def violations(self) -> list[Violation]:
        """Compare the log with a calm run."""
        return violations(self.request, self.log)

    async def run(self, address: str) -> None:
        """Transcribe and log updates."""
        await asyncio.sleep(self.request.start_after_s)
        try:
            while True:
                try:
                    if isinstance(self.request, FileRequest):
                        await self._transcribe(self.request, address)
                    else:
                        await self._speak(self.request, address)
                    break
                except TargetUnavailable:
                    if self.log.updates or not self._retries_opening:
                        raise
                    self.num_restarts += 1
                    await asyncio.sleep(0.1)
        except SpecWhisperError as error:
            self.log.error = f"{type(error).__name__}: {error}"
        finally:
            self.log.ended_s = monotonic()

    async def _transcribe(self, request: FileRequest, address: str) -> None:
        path = file_of(request, self._folder)
        async with TranscriptionClient(address) as client:
            updates = client.stream_file(
                path, options_of(request), mode=request.mode, gamma=request.gamma, with_statistics=True
            )
            try:
                async for update in updates:
                    self._note(update)
            finally:
                self.num_resumes += updates.num_resumes

    async def _speak(self, request: LiveRequest, address: str) -> None:
        async with StreamingClient(
            address,
            DecodingOptions.greedy(language="en"),
            live=LiveOptions(step_ms=STEP_MS),
            endpointing=EndpointingOptions() if request.has_utterances else None,
            mode=request.mode,
            continue_unverified=request.continue_unverified,
            with_statistics=True,
        ) as stream:
            speaking = asyncio.create_task(send_at_pace(stream, pcm_of(request), request.speed))
            try:
                async with aclosing(aiter(stream)) as updates:
                    async for update in updates:
                        self._note(update)
            finally:
                self.num_resumes += stream.num_reconnects
                speaking.cancel()
                await asyncio.gather(speaking, return_exceptions=True)

    def _note(self, update: Update) -> None:
        before = self.log.updates[-1] if self.log.updates else ReceivedUpdate(0.0)
        num_committed = before.num_committed
        if update.statistics is not None:
            num_committed = update.statistics.num_committed
        self.log.updates.append(
            ReceivedUpdate(monotonic(), update.segments, num_committed, update.received_s)
        )


def options_of(request: FileRequest) -> DecodingOptions:
    """Return the request's decoding options."""
    if request.option == DEMO:
        return demo.options_of(request.audio_seed)
    return replace(OPTIONS[request.option], log_mel_max=LOG_MEL_MAX)


def file_of(request: FileRequest, folder: Path) -> Path:
    """Return the file of a recording."""
    if request.option == DEMO:
        return _speech_file(request.audio_seed, folder)
    return recording_file(request.length_s, request.audio_seed, folder)


@cache
def _speech_file(seed: int, folder: Path) -> Path:
    path = folder / f"speech-{seed}.wav"
    write_wav(path, demo.speech_of(seed))
    return path


@cache
def expected_segments_of(option: str, length_s: float, audio_seed: int) -> Sequence[Segment]:
    """Return the segments that the target alone writes for a recording."""
    if option == DEMO:
        return demo.expected_segments(audio_seed)
    return expected_segments(OPTIONS[option], length_s, audio_seed)


def pcm_of(request: LiveRequest) -> bytes:
    """Return the live audio, with pauses if they end utterances."""
    return talk() if request.has_utterances else speech(LENGTH_S)


def expected_words(request: LiveRequest) -> dict[int, list[int]]:
    """Return the words of the live audio, by utterance."""
    if request.has_utterances:
        return spoken_utterances(pcm_of(request))
    return {1: [token for token in words_of(samples_of(pcm_of(request))) if token < END]}


def violations(request: Request, log: ClientLog) -> list[Violation]:
    """Return the violations in a log."""
    if isinstance(request, FileRequest):
        return recording_violations(
            log, expected_segments_of(request.option, request.length_s, request.audio_seed)
        )
    return live_violations(log, expected_words(request))
