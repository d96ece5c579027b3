"""Voice activity at the edge: silero-vad's ONNX model marks where speech lies in live audio."""

from __future__ import annotations

import asyncio
import copy
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import torch

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.endpointing import FRAME_SAMPLES, Endpointer
from specwhisper.errors import UnsupportedOption
from specwhisper.live import EndpointingOptions
from specwhisper.types import SAMPLE_RATE, VoiceEvent, VoiceMark

# Threads of its own: recordings are decoded, and scanned for minutes, in those of the event loop.
EARS = ThreadPoolExecutor(thread_name_prefix="voice")


class Voice:
    """Marks one stream's speech; without options everything is speech.

    Parameters
    ----------
    start_sample : place of the first sample it will hear.
    """

    def __init__(self, options: EndpointingOptions | None, start_sample: int = 0) -> None:
        self._endpointer = None if options is None else Endpointer(options, start_sample)
        self._model = None if options is None else copy.copy(_model())  # its state is its own from here on
        self._unheard = b""
        self._start_sample = start_sample
        self._has_begun = False

    async def hear(self, pcm: bytes) -> tuple[VoiceMark, ...]:
        """Take in canonical PCM and give what it makes known."""
        if self._endpointer is None:
            has_begun, self._has_begun = self._has_begun, True
            return () if has_begun else (VoiceMark(VoiceEvent.BEGIN, self._start_sample),)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(EARS, self._hear, self._endpointer, pcm)

    def _hear(self, endpointer: Endpointer, pcm: bytes) -> tuple[VoiceMark, ...]:
        data = self._unheard + pcm
        num_frames = len(data) // (FRAME_SAMPLES * BYTES_PER_SAMPLE)
        end = num_frames * FRAME_SAMPLES * BYTES_PER_SAMPLE
        self._unheard = data[end:]
        frames = torch.from_numpy(np.frombuffer(data[:end], "<i2").astype(np.float32) / 32768)
        marks: list[VoiceMark] = []
        for frame in frames.view(num_frames, FRAME_SAMPLES):
            marks += endpointer.hear(self._model(frame, SAMPLE_RATE).item())  # type: ignore[misc]
        return tuple(marks)


async def load_voice() -> None:
    """Load the model beside the event loop, before anybody speaks.

    Where it is not installed, those who ask for it are told so.
    """
    with suppress(UnsupportedOption):
        await asyncio.to_thread(_model)


@cache
def _model() -> Any:
    """Load silero-vad once; copies share its weights."""
    num_threads = torch.get_num_threads()
    try:
        from silero_vad import load_silero_vad

        model = load_silero_vad(onnx=True)
    except ModuleNotFoundError as error:
        raise UnsupportedOption(
            f"Live audio needs {error.name} on the draft server: pip install 'specwhisper[server]', or ask "
            "for no endpointing."
        ) from error
    finally:
        torch.set_num_threads(num_threads)  # importing silero-vad sets it to 1 for the whole process
    model.reset_states()
    return model
