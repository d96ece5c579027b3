"""Transcribe a recording in real time with one of LiveKit's speech recognition plugins.

Run it as a script, with an interpreter that has ``livekit-agents``:
``livekit_client.py SERVICE ADDRESS RECORDING SETTINGS``. ``SETTINGS`` is a JSON object of the plugin's
parameters. Every text is a JSON line: seconds since the audio began, kind, text.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import wave
from typing import Any

from livekit import rtc
from livekit.agents.stt import SpeechEvent, SpeechEventType
from livekit.agents.utils import http_context
from livekit.plugins import nvidia, openai

FRAME_S = 0.02
KINDS = {SpeechEventType.INTERIM_TRANSCRIPT: "interim", SpeechEventType.FINAL_TRANSCRIPT: "final"}


def plugin_of(name: str, address: str, settings: dict[str, Any]) -> Any:
    """Return a plugin with its defaults, but for address and key."""
    if name == "nvidia":
        return nvidia.STT(server=address, use_ssl=False, **settings)
    settings = {"use_realtime": name == "openai-realtime"} | settings
    return openai.STT(base_url=f"http://{address}/v1", api_key="any", **settings)


def show(event: SpeechEvent, start_s: float) -> None:
    """Print a text."""
    if kind := KINDS.get(event.type):
        text = event.alternatives[0].text
        print(json.dumps({"s": time.monotonic() - start_s, "kind": kind, "text": text}), flush=True)


async def main(name: str, address: str, recording: str, settings: str) -> None:
    """Send the recording at the speed of speech, then end."""
    with wave.open(recording) as file:
        rate, pcm = file.getframerate(), file.readframes(file.getnframes())
    async with http_context.open():
        plugin = plugin_of(name, address, json.loads(settings))
        start_s = time.monotonic()
        if not plugin.capabilities.streaming:
            show(await plugin.recognize(rtc.AudioFrame(pcm, rate, 1, len(pcm) // 2)), start_s)
            return
        stream = plugin.stream()

        async def read() -> None:
            async for event in stream:
                show(event, start_s)

        reading = asyncio.create_task(read())
        size = round(rate * FRAME_S) * 2
        for index, start in enumerate(range(0, len(pcm), size)):
            await asyncio.sleep(max(0.0, start_s + index * FRAME_S - time.monotonic()))
            piece = pcm[start : start + size]
            stream.push_frame(rtc.AudioFrame(piece, rate, 1, len(piece) // 2))
        stream.end_input()
        if name == "nvidia":  # its stream ends by itself; that of the realtime API lasts until it is closed
            await reading
        await stream.aclose()
        await asyncio.gather(reading, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
