"""Detect the utterances of live audio, with silero-vad's ONNX model."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache

from specwhisper.audio.endpointing import Endpointer
from specwhisper.audio.silero import SileroVad
from specwhisper.audio.voice import VoiceMarker, loudness
from specwhisper.errors import MissingExtra
from specwhisper.live import EndpointingOptions
from specwhisper.types import VoiceEvent, VoiceMark

# Separate threads: the event loop's own ones decode recordings, which takes minutes.
EXECUTOR = ThreadPoolExecutor(thread_name_prefix="voice")


class VoiceActivity:
    """Marks the utterances of one stream, by its audio alone.

    Parameters
    ----------
    options : how utterances are found; ``None`` treats all audio as one utterance.
    start_sample, is_speech : the stream's beginning, or a boundary of another detector, and whether an
        utterance was cut there and continues. This one finds the later marks of that one.
    """

    def __init__(
        self, options: EndpointingOptions | None, start_sample: int = 0, *, is_speech: bool = False
    ) -> None:
        self.start_sample = start_sample
        self._boundaries = deque([start_sample])
        self._endpointer = Endpointer(options, start_sample, is_speech=is_speech)
        self._marker = VoiceMarker(self._endpointer, (lambda: loudness) if options is None else _model().open)

    def boundary_before(self, sample: int) -> int:
        """Return where another would continue: a cut or end before a sample, or in the silence since.

        Earlier ones are forgotten: the samples that are asked for only grow.
        """
        while len(self._boundaries) > 1 and self._boundaries[1] <= sample:
            self._boundaries.popleft()
        return self._boundaries[0]

    async def detect(self, pcm: bytes) -> tuple[VoiceMark, ...]:
        """Process canonical PCM; return the marks that it leads to."""
        loop = asyncio.get_running_loop()
        return self._noted(await loop.run_in_executor(EXECUTOR, self._marker.append, pcm))

    def end_utterance(self) -> tuple[VoiceMark, ...]:
        """End the utterance at the newest sample; return the marks.

        Without speech there are none. Speech that is too short for an utterance so far becomes one, so
        nothing is lost where the client, or the audio, ends.
        """
        return self._noted(self._marker.end_utterance())

    def _noted(self, marks: Sequence[VoiceMark]) -> tuple[VoiceMark, ...]:
        """Note the boundaries."""
        at_marks = (mark.sample for mark in marks if mark.event is not VoiceEvent.BEGIN)
        for sample in (*at_marks, self._endpointer.boundary_sample):
            if sample > self._boundaries[-1]:
                self._boundaries.append(sample)
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
