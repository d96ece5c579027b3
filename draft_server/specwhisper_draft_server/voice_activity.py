"""Detect where speech lies in live audio, with silero-vad's ONNX model."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache

import numpy as np

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.endpointing import FRAME_SAMPLES, Endpointer
from specwhisper.audio.silero import SileroStream, SileroVad
from specwhisper.errors import MissingExtra
from specwhisper.live import EndpointingOptions
from specwhisper.types import VoiceEvent, VoiceMark

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
        self._vad = None if options is None else _model().open()
        self._rest = b""  # less than a frame
        self._start_sample = start_sample
        self._has_begun = False

    async def detect(self, pcm: bytes, sentence_end_sample: int | None = None) -> tuple[VoiceMark, ...]:
        """Process canonical PCM; return the marks that it leads to.

        ``sentence_end_sample`` is the :class:`Endpointer`'s.
        """
        if self._endpointer is None or self._vad is None:
            has_begun, self._has_begun = self._has_begun, True
            return () if has_begun else (VoiceMark(VoiceEvent.BEGIN, self._start_sample),)
        self._endpointer.sentence_end_sample = sentence_end_sample
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(EXECUTOR, self._detect, self._endpointer, self._vad, pcm)

    def _detect(self, endpointer: Endpointer, vad: SileroStream, pcm: bytes) -> tuple[VoiceMark, ...]:
        data = self._rest + pcm
        num_frames = len(data) // (FRAME_SAMPLES * BYTES_PER_SAMPLE)
        end = num_frames * FRAME_SAMPLES * BYTES_PER_SAMPLE
        self._rest = data[end:]
        samples = np.frombuffer(data[:end], "<i2").astype(np.float32) / np.float32(32768)
        marks: list[VoiceMark] = []
        for frame in samples.reshape(num_frames, FRAME_SAMPLES):
            marks += endpointer.on_vad_probability(vad(frame))
        return tuple(marks)


async def load_voice_activity() -> None:
    """Load the model in a thread, before the first stream needs it.

    If it is not installed, streams that need it are refused.
    """
    with suppress(MissingExtra):
        await asyncio.to_thread(_model)


@cache
def _model() -> SileroVad:
    """Return the model, loaded once."""
    return SileroVad("Live audio on the draft server", "draft", "or ask for no endpointing")
