"""Show live captions with Pipecat: text that may change on one line, final text above it.

Needs servers (`make demo-web` starts them, and prints the draft server's address) and Pipecat:

    pip install "pipecat-ai[nvidia]" soundfile
    python examples/pipecat_captions.py speech.flac --server 127.0.0.1:50051

With the extra `local`, which needs PortAudio, it listens to the microphone: leave the recording out.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import soundfile
from loguru import logger
from pipecat.frames.frames import EndFrame, InputAudioRawFrame, InterimTranscriptionFrame, TranscriptionFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.nvidia.stt import NvidiaSTTService
from pipecat.workers.runner import WorkerRunner

SAMPLE_RATE = 16_000
PIECE_S, SILENCE_S = 0.02, 3.0


class Captions(FrameProcessor):
    """Writes the text of each utterance as it grows."""

    async def process_frame(self, frame: Any, direction: Any) -> None:
        """Write a frame's text, and pass every frame on."""
        await super().process_frame(frame, direction)
        if isinstance(frame, InterimTranscriptionFrame):
            print(f"\r\033[K\033[2m{frame.text.strip()}\033[0m", end="", flush=True)
        if isinstance(frame, TranscriptionFrame):
            print(f"\r\033[K{frame.text.strip()}", flush=True)
        await self.push_frame(frame, direction)


def microphone() -> Any:
    """Return a processor that reads the microphone."""
    from pipecat.transports.local.audio import LocalAudioTransport, LocalAudioTransportParams

    return LocalAudioTransport(LocalAudioTransportParams(audio_in_enabled=True)).input()


async def play(recording: soundfile.SoundFile, queue_frame: Callable[[Any], Awaitable[None]]) -> None:
    """Send the first channel of a recording at the speed of speech, then silence for the last text."""
    rate = recording.samplerate
    silence = np.zeros((round(rate * SILENCE_S), 1), np.int16)
    samples = np.concatenate([recording.read(dtype="int16", always_2d=True)[:, :1], silence])
    num_samples = round(rate * PIECE_S)
    for start in range(0, len(samples), num_samples):
        pcm = samples[start : start + num_samples].tobytes()
        await queue_frame(InputAudioRawFrame(audio=pcm, sample_rate=rate, num_channels=1))
        await asyncio.sleep(PIECE_S)
    await queue_frame(EndFrame())


async def main(path: str | None, server: str) -> None:
    """Caption a recording, or the microphone until Ctrl-C."""
    recording = soundfile.SoundFile(path) if path else None
    stt = NvidiaSTTService(server=server, use_ssl=False)
    pipeline = Pipeline([*([] if recording else [microphone()]), stt, Captions()])
    rate = recording.samplerate if recording else SAMPLE_RATE
    worker = PipelineWorker(pipeline, params=PipelineParams(audio_in_sample_rate=rate))
    is_started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_started(*_: object) -> None:
        is_started.set()

    runner = WorkerRunner()
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    await is_started.wait()
    if recording:
        await play(recording, worker.queue_frame)
    await running


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Show live captions with Pipecat.")
    parser.add_argument("recording", nargs="?", help="A recording. Default: the microphone.")
    parser.add_argument("--server", default="127.0.0.1:50051", help="Address of the draft server.")
    arguments = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="ERROR")
    asyncio.run(main(arguments.recording, arguments.server))
