"""Clients over gRPC that note all they are told, and what an undisturbed run would have told them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import monotonic

import numpy as np
import soundfile

from client.api import TranscriptionClient
from client.streaming import StreamingClient
from client.transcript import Update
from experiments.chaos import demo
from experiments.chaos.asked import DEMO, OPTIONS, Asked, Recorded, Spoken
from experiments.chaos.oracle import Log, Told, live_violations, recording_violations
from experiments.common.scripted import END, recording
from experiments.common.speaking import (
    LENGTH_S,
    SPOKEN_MULTILINGUAL,
    HearingModel,
    samples_of,
    speech,
    spoken_utterances,
    talk,
    words_of,
)
from specwhisper.errors import SpecWhisperError, TargetUnavailable
from specwhisper.live import EndpointingOptions, LiveOptions
from specwhisper.options import DecodingOptions
from specwhisper.types import SAMPLE_RATE, Segment
from specwhisper.whisper.one_process import OneProcess

STEP_MS = 300
PIECE_SAMPLES = SAMPLE_RATE // 10
LOG_MEL_MAX = {HearingModel.num_mel_bins: 1.0}  # a scripted model does not look; so nobody computes it


class Client:
    """One client and its log.

    Parameters
    ----------
    folder : where recordings lie.
    """

    def __init__(self, asked: Asked, folder: Path) -> None:
        self.asked = asked
        self.log = Log(str(asked))
        self._folder = folder

    @property
    def has_begun(self) -> bool:
        """Whether the target has committed something, or nothing can come any more."""
        return bool(self.log.progress_s) or self.log.ended_s is not None

    def violations(self) -> list[str]:
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
                    if self.log.told:
                        raise
                    await asyncio.sleep(0.1)  # nobody was there when it began: it begins again, as people do
        except SpecWhisperError as error:
            self.log.error = f"{type(error).__name__}: {error}"
        finally:
            self.log.ended_s = monotonic()

    async def _transcribe(self, asked: Recorded, address: str) -> None:
        path = recording_file(asked, self._folder)
        async with TranscriptionClient(address) as client:
            updates = client.stream_file(path, options_of(asked), mode=asked.mode, gamma=asked.gamma)
            async for update in updates:
                self._note(update)

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
                speaking.cancel()
                await asyncio.gather(speaking, return_exceptions=True)

    def _note(self, update: Update) -> None:
        before = self.log.told[-1] if self.log.told else Told(0.0)
        num_committed = before.num_committed
        if update.statistics is not None:
            num_committed = update.statistics.num_committed
        self.log.told.append(Told(monotonic(), update.segments, num_committed, update.received_s))


async def say(stream: StreamingClient, pcm: bytes, speed: float) -> None:
    """Speak at a pace, by the clock, and then no more."""
    began_s = monotonic()
    for start in range(0, len(pcm) // 2, PIECE_SAMPLES):
        await asyncio.sleep(max(0.0, began_s + start / SAMPLE_RATE / speed - monotonic()))
        await stream.send(pcm[start * 2 : (start + PIECE_SAMPLES) * 2])
    await stream.finish()


def options_of(asked: Recorded) -> DecodingOptions:
    """Give what is asked of the target."""
    if asked.option == DEMO:
        return demo.options_of(asked.audio_seed)
    return replace(OPTIONS[asked.option], log_mel_max=LOG_MEL_MAX)


def recording_file(asked: Recorded, folder: Path) -> Path:
    """Give the file that a recording lies in."""
    return _written(asked.option == DEMO, asked.length_s, asked.audio_seed, folder)


@cache
def _written(is_demo: bool, length_s: float, seed: int, folder: Path) -> Path:
    """Write a recording, once: others may read it already."""
    pcm = demo.speech_of(seed) if is_demo else recording(length_s, seed)
    path = folder / f"{'speech' if is_demo else 'noise'}-{length_s:g}-{seed}.wav"
    soundfile.write(path, np.frombuffer(pcm, "<i2"), SAMPLE_RATE, subtype="PCM_16")
    return path


@cache
def undisturbed(option: str, length_s: float, audio_seed: int) -> Sequence[Segment]:
    """Give what the target writes of a recording by itself, in one process."""
    alone = OneProcess(HearingModel(vocabulary=SPOKEN_MULTILINGUAL))
    options = replace(OPTIONS[option], log_mel_max=LOG_MEL_MAX)
    return alone.transcribe([recording(length_s, audio_seed)], options)[0].segments


def sound_of(asked: Spoken) -> bytes:
    """Give what is said: with pauses where they end utterances, else without."""
    return talk() if asked.has_utterances else speech(LENGTH_S)


def undisturbed_words(asked: Spoken) -> dict[int, list[int]]:
    """Give the words that are said, by utterance."""
    if asked.has_utterances:
        return spoken_utterances(sound_of(asked))
    return {1: [token for token in words_of(samples_of(sound_of(asked))) if token < END]}


def violations(asked: Asked, log: Log) -> list[str]:
    """Say what is wrong with a log."""
    if isinstance(asked, Recorded) and asked.option == DEMO:
        return recording_violations(log, demo.undisturbed(asked.audio_seed))
    if isinstance(asked, Recorded):
        return recording_violations(log, undisturbed(asked.option, asked.length_s, asked.audio_seed))
    return live_violations(log, undisturbed_words(asked))
