"""Detect where speech lies in live audio, with silero-vad's ONNX model."""

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

# Separate threads: the event loop's own ones decode recordings, which takes minutes.
EXECUTOR = ThreadPoolExecutor(thread_name_prefix="voice")


class VoiceActivity:
    """Marks the speech of one stream.

    Parameters
    ----------
    options : how utterances are found; ``None`` treats all audio as one utterance.
    start_sample : position of the first sample.
    """

    def __init__(self, options: EndpointingOptions | None, start_sample: int = 0) -> None:
        self._endpointer = None if options is None else Endpointer(options, start_sample)
        self._model = None if options is None else copy.copy(_model())  # weights are shared, state is not
        self._rest = b""  # less than a frame
        self._start_sample = start_sample
        self._has_begun = False

    async def detect(self, pcm: bytes) -> tuple[VoiceMark, ...]:
        """Process canonical PCM; return the marks that it leads to."""
        if self._endpointer is None:
            has_begun, self._has_begun = self._has_begun, True
            return () if has_begun else (VoiceMark(VoiceEvent.BEGIN, self._start_sample),)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(EXECUTOR, self._detect, self._endpointer, pcm)

    def _detect(self, endpointer: Endpointer, pcm: bytes) -> tuple[VoiceMark, ...]:
        data = self._rest + pcm
        num_frames = len(data) // (FRAME_SAMPLES * BYTES_PER_SAMPLE)
        end = num_frames * FRAME_SAMPLES * BYTES_PER_SAMPLE
        self._rest = data[end:]
        frames = torch.from_numpy(np.frombuffer(data[:end], "<i2").astype(np.float32) / 32768)
        marks: list[VoiceMark] = []
        for frame in frames.view(num_frames, FRAME_SAMPLES):
            marks += endpointer.on_vad_probability(self._model(frame, SAMPLE_RATE).item())  # type: ignore[misc]
        return tuple(marks)


async def load_voice_activity() -> None:
    """Load the model in a thread, before the first stream needs it.

    If silero-vad is not installed, streams that need it are refused.
    """
    with suppress(UnsupportedOption):
        await asyncio.to_thread(_model)


@cache
def _model() -> Any:
    """Return silero-vad's model, loaded once; copies share its weights."""
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
