"""Detect the utterances of live audio, with silero-vad's ONNX model."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache

from specwhisper.audio.endpointing import Endpointer, VoiceMarker, loudness
from specwhisper.audio.speech import SileroVad
from specwhisper.errors import MissingExtra
from specwhisper.live import EndpointingOptions
from specwhisper.types import VoiceMark

# A separate pool: the event loop's own threads decode recordings, which takes minutes.
EXECUTOR = ThreadPoolExecutor(thread_name_prefix="voice")


class VoiceActivity(VoiceMarker):
    """Marks the utterances of one stream, by its audio alone.

    Parameters
    ----------
    options : how utterances are found; with ``None`` all audio is one utterance.
    start_sample : the stream's beginning, or another detector's boundary, whose later marks this one finds
        as well.
    is_speech : whether an utterance was cut there, and continues.
    """

    def __init__(
        self, options: EndpointingOptions | None, start_sample: int = 0, *, is_speech: bool = False
    ) -> None:
        self.start_sample = start_sample
        endpointer = Endpointer(options, start_sample, is_speech=is_speech)
        super().__init__(endpointer, (lambda: loudness) if options is None else _model().open)

    async def detect(self, pcm: bytes) -> list[VoiceMark]:
        """Process canonical PCM; return the marks that follow from it."""
        return await asyncio.get_running_loop().run_in_executor(EXECUTOR, self.append, pcm)


async def load_voice_activity() -> None:
    """Load the model in a thread, before the first stream needs it.

    If it is not installed, streams that need it are refused.
    """
    with suppress(MissingExtra):
        await asyncio.to_thread(_model)


@cache
def _model() -> SileroVad:
    return SileroVad("Live audio on the draft server", "draft", "or ask for no endpointing")
