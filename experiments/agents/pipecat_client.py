"""Transcribe a recording in real time with one of Pipecat's services.

Run it as a script, with an interpreter that has ``pipecat-ai``:
``pipecat_client.py SERVICE ADDRESS RECORDING SETTINGS``. ``SETTINGS`` is a JSON object of the service's
parameters. Every text is a JSON line: seconds since the audio began, kind, text.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import wave
from typing import Any

from loguru import logger
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.audio.vad_processor import VADProcessor
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.nvidia.stt import NvidiaSTTService
from pipecat.services.openai.stt import OpenAIRealtimeSTTService, OpenAISTTService
from pipecat.workers.runner import WorkerRunner

FRAME_S = 0.02
KINDS = {InterimTranscriptionFrame: "interim", TranscriptionFrame: "final", ErrorFrame: "error"}


class Printer(FrameProcessor):
    """Prints texts and errors."""

    def __init__(self) -> None:
        super().__init__()
        self.start_s = 0.0

    async def process_frame(self, frame: Any, direction: Any) -> None:
        """Print a frame with text, and pass every frame on."""
        await super().process_frame(frame, direction)
        if kind := KINDS.get(type(frame)):
            text = frame.error if kind == "error" else frame.text
            print(json.dumps({"s": time.monotonic() - self.start_s, "kind": kind, "text": text}), flush=True)
        await self.push_frame(frame, direction)


def service_of(name: str, address: str, settings: dict[str, Any]) -> Any:
    """Return a service with its defaults, but for address and key."""
    if name == "nvidia":
        return NvidiaSTTService(server=address, use_ssl=False, **settings)
    if name == "openai":
        return OpenAISTTService(api_key="any", base_url=f"http://{address}/v1", **settings)
    return OpenAIRealtimeSTTService(api_key="any", base_url=f"ws://{address}/v1/realtime", **settings)


async def main(name: str, address: str, recording: str, settings: str) -> None:
    """Send the recording at the speed of speech, then end."""
    printer = Printer()
    # The services over HTTP commit when Pipecat's own voice activity detection reports silence.
    vad = [] if name == "nvidia" else [VADProcessor(vad_analyzer=SileroVADAnalyzer())]
    pipeline = Pipeline([*vad, service_of(name, address, json.loads(settings)), printer])
    with wave.open(recording) as file:
        rate, pcm = file.getframerate(), file.readframes(file.getnframes())
    worker = PipelineWorker(pipeline, params=PipelineParams(audio_in_sample_rate=rate))
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_started(*_: object) -> None:
        started.set()

    async def feed() -> None:
        await started.wait()
        printer.start_s = time.monotonic()
        size = round(rate * FRAME_S) * 2
        for index, start in enumerate(range(0, len(pcm), size)):
            await asyncio.sleep(max(0.0, printer.start_s + index * FRAME_S - time.monotonic()))
            piece = pcm[start : start + size]
            await worker.queue_frame(InputAudioRawFrame(audio=piece, sample_rate=rate, num_channels=1))
        await worker.queue_frame(EndFrame())

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), feed())


if __name__ == "__main__":
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    asyncio.run(main(*sys.argv[1:]))
