"""Transcribe a recording in real time with a service of Pipecat or a plugin of LiveKit.

Run it as a script, with an interpreter that has ``pipecat-ai`` or ``livekit-agents``:
``agent_client.py FRAMEWORK SERVICE ADDRESS RECORDING``. Services have their defaults. Every text is a JSON
line of its kind (interim, final or error) and the text.
"""

import asyncio
import json
import sys
import time
import wave
from collections.abc import AsyncIterator
from typing import Any

FRAME_S = 0.02


async def with_livekit(name: str, address: str, pcm: bytes, rate: int) -> None:
    from livekit import rtc
    from livekit.agents.stt import SpeechEventType
    from livekit.agents.utils import http_context
    from livekit.plugins import nvidia, openai

    kinds = {SpeechEventType.INTERIM_TRANSCRIPT: "interim", SpeechEventType.FINAL_TRANSCRIPT: "final"}

    def show(event: Any) -> None:
        if kind := kinds.get(event.type):
            show_text(kind, event.alternatives[0].text)

    def frame(piece: bytes) -> rtc.AudioFrame:
        return rtc.AudioFrame(piece, rate, 1, len(piece) // 2)

    async with http_context.open():
        if name == "nvidia":
            plugin = nvidia.STT(server=address, use_ssl=False)
        else:
            plugin = openai.STT(
                base_url=f"http://{address}/v1", api_key="any", use_realtime=name == "openai-realtime"
            )
        if not plugin.capabilities.streaming:
            show(await plugin.recognize(frame(pcm)))
            return
        stream = plugin.stream()

        async def read() -> None:
            async for event in stream:
                show(event)

        reading = asyncio.create_task(read())
        async for piece in spoken(pcm, rate):
            stream.push_frame(frame(piece))
        stream.end_input()
        if name == "nvidia":  # its stream ends by itself; that of the realtime API lasts until it is closed
            await reading
        await stream.aclose()
        await asyncio.gather(reading, return_exceptions=True)


async def with_pipecat(name: str, address: str, pcm: bytes, rate: int) -> None:
    from loguru import logger
    from pipecat.audio.vad.silero import SileroVADAnalyzer
    from pipecat.frames import frames
    from pipecat.pipeline.pipeline import Pipeline
    from pipecat.pipeline.worker import PipelineParams, PipelineWorker
    from pipecat.processors.audio.vad_processor import VADProcessor
    from pipecat.processors.frame_processor import FrameProcessor
    from pipecat.services.nvidia.stt import NvidiaSTTService
    from pipecat.services.openai.stt import OpenAIRealtimeSTTService, OpenAISTTService
    from pipecat.workers.runner import WorkerRunner

    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    kinds = {
        frames.InterimTranscriptionFrame: "interim",
        frames.TranscriptionFrame: "final",
        frames.ErrorFrame: "error",
    }

    class Printer(FrameProcessor):
        async def process_frame(self, frame: Any, direction: Any) -> None:
            await super().process_frame(frame, direction)
            if kind := kinds.get(type(frame)):
                show_text(kind, frame.error if kind == "error" else frame.text)
            await self.push_frame(frame, direction)

    if name == "nvidia":
        service = NvidiaSTTService(server=address, use_ssl=False)
    elif name == "openai":
        service = OpenAISTTService(api_key="any", base_url=f"http://{address}/v1")
    else:
        service = OpenAIRealtimeSTTService(api_key="any", base_url=f"ws://{address}/v1/realtime")
    # The services over HTTP commit when Pipecat's own voice activity detection reports silence.
    vad = [] if name == "nvidia" else [VADProcessor(vad_analyzer=SileroVADAnalyzer())]
    pipeline = Pipeline([*vad, service, Printer()])
    worker = PipelineWorker(pipeline, params=PipelineParams(audio_in_sample_rate=rate))
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def on_started(*_: object) -> None:
        started.set()

    async def feed() -> None:
        await started.wait()
        async for piece in spoken(pcm, rate):
            frame = frames.InputAudioRawFrame(audio=piece, sample_rate=rate, num_channels=1)
            await worker.queue_frame(frame)
        await worker.queue_frame(frames.EndFrame())

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), feed())


async def spoken(pcm: bytes, rate: int) -> AsyncIterator[bytes]:
    """Yield pieces at the speed of speech."""
    size, started_s = round(rate * FRAME_S) * 2, time.monotonic()
    for index, start in enumerate(range(0, len(pcm), size)):
        await asyncio.sleep(max(0.0, started_s + index * FRAME_S - time.monotonic()))
        yield pcm[start : start + size]


def show_text(kind: str, text: str) -> None:
    print(json.dumps({"kind": kind, "text": text}), flush=True)


async def main(framework: str, name: str, address: str, recording: str) -> None:
    with wave.open(recording) as file:
        rate, pcm = file.getframerate(), file.readframes(file.getnframes())
    run = with_pipecat if framework == "pipecat" else with_livekit
    await run(name, address, pcm, rate)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
