"""Clients over gRPC that note all they are told, and what an undisturbed run would have told them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import monotonic

from experiments.chaos import demo
from experiments.chaos.asked import DEMO, OPTIONS, Asked, Recorded, Spoken
from experiments.common.models.scripted import END
from experiments.common.models.speech import LENGTH_S, samples_of, speech, spoken_utterances, talk, words_of
from experiments.common.oracle import Log, Told, Violation, live_violations, recording_violations
from experiments.common.servers.clients import LOG_MEL_MAX, expected_segments, recording_file, say, write_wav
from specwhisper.errors import SpecWhisperError, TargetUnavailable
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.types import Segment
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.streaming import StreamingClient
from specwhisper_client.transcript import Update

STEP_MS = 300


class Client:
    """One client and its log.

    Parameters
    ----------
    folder : where recordings lie.
    begins_again : where nobody is there, as long as nothing was told; as people do.

    Attributes
    ----------
    num_restarts : how often it began again.
    num_resumes : how often another call went on, or tried to.
    """

    def __init__(self, asked: Asked, folder: Path, *, begins_again: bool = False) -> None:
        self.asked = asked
        self.log = Log(str(asked))
        self.num_restarts = 0
        self.num_resumes = 0
        self._begins_again = begins_again
        self._folder = folder

    @property
    def has_begun(self) -> bool:
        """Whether the target has committed something, or nothing can come any more."""
        return bool(self.log.progress_s) or self.log.ended_s is not None

    def violations(self) -> list[Violation]:
        """Hold the log against an undisturbed run."""
        return violations(self.asked, self.log)

    async def run(self, address: str) -> None:
        """Transcribe, and note what comes."""
        await asyncio.sleep(self.asked.begins_s)
        try:
            while True:
                try:
                    if isinstance(self.asked, Recorded):
                        await self._transcribe(self.asked, address)
                    else:
                        await self._speak(self.asked, address)
                    break
                except TargetUnavailable:
                    if self.log.told or not self._begins_again:
                        raise
                    self.num_restarts += 1
                    await asyncio.sleep(0.1)
        except SpecWhisperError as error:
            self.log.error = f"{type(error).__name__}: {error}"
        finally:
            self.log.ended_s = monotonic()

    async def _transcribe(self, asked: Recorded, address: str) -> None:
        path = file_of(asked, self._folder)
        async with TranscriptionClient(address) as client:
            updates = client.stream_file(path, options_of(asked), mode=asked.mode, gamma=asked.gamma)
            try:
                async for update in updates:
                    self._note(update)
            finally:
                self.num_resumes += updates.num_resumes

    async def _speak(self, asked: Spoken, address: str) -> None:
        async with StreamingClient(
            address,
            DecodingOptions(language="en"),
            live=LiveOptions(trim_ms=asked.trim_ms, step_ms=STEP_MS),
            endpointing=EndpointingOptions() if asked.has_utterances else None,
            mode=asked.mode,
            continue_unverified=asked.continue_unverified,
        ) as stream:
            speaking = asyncio.create_task(say(stream, sound_of(asked), asked.speed))
            try:
                async with aclosing(aiter(stream)) as updates:
                    async for update in updates:
                        self._note(update)
            finally:
                self.num_resumes += stream.num_reconnects
                speaking.cancel()
                await asyncio.gather(speaking, return_exceptions=True)

    def _note(self, update: Update) -> None:
        before = self.log.told[-1] if self.log.told else Told(0.0)
        num_committed = before.num_committed
        if update.statistics is not None:
            num_committed = update.statistics.num_committed
        self.log.told.append(Told(monotonic(), update.segments, num_committed, update.received_s))


def options_of(asked: Recorded) -> DecodingOptions:
    """Return what is asked of the target."""
    if asked.option == DEMO:
        return demo.options_of(asked.audio_seed)
    return replace(OPTIONS[asked.option], log_mel_max=LOG_MEL_MAX)


def file_of(asked: Recorded, folder: Path) -> Path:
    """Return the file that a recording lies in."""
    if asked.option == DEMO:
        return _speech_file(asked.audio_seed, folder)
    return recording_file(asked.length_s, asked.audio_seed, folder)


@cache
def _speech_file(seed: int, folder: Path) -> Path:
    path = folder / f"speech-{seed}.wav"
    write_wav(path, demo.speech_of(seed))
    return path


@cache
def segments_due(option: str, length_s: float, audio_seed: int) -> Sequence[Segment]:
    """Return what the target writes of a recording by itself."""
    if option == DEMO:
        return demo.expected_segments(audio_seed)
    return expected_segments(OPTIONS[option], length_s, audio_seed)


def sound_of(asked: Spoken) -> bytes:
    """Return what is said: with pauses where they end utterances, else without."""
    return talk() if asked.has_utterances else speech(LENGTH_S)


def undisturbed_words(asked: Spoken) -> dict[int, list[int]]:
    """Return the words that are said, by utterance."""
    if asked.has_utterances:
        return spoken_utterances(sound_of(asked))
    return {1: [token for token in words_of(samples_of(sound_of(asked))) if token < END]}


def violations(asked: Asked, log: Log) -> list[Violation]:
    """Say what is wrong with a log."""
    if isinstance(asked, Recorded):
        return recording_violations(log, segments_due(asked.option, asked.length_s, asked.audio_seed))
    return live_violations(log, undisturbed_words(asked))
