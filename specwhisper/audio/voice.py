"""Mark the utterances of live audio as it comes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from specwhisper.audio.canonical import BYTES_PER_SAMPLE
from specwhisper.audio.endpointing import FRAME_SAMPLES, Endpointer
from specwhisper.types import VoiceMark

FRAME_BYTES = FRAME_SAMPLES * BYTES_PER_SAMPLE

# Returns the probability of speech in the next frame, samples in -1..1; it may keep state.
Vad = Callable[[NDArray[np.float32]], float]


class VoiceMarker:
    """Runs a model over one stream, anew from each boundary on.

    Parameters
    ----------
    open_vad : begins the model anew.
    """

    def __init__(self, endpointer: Endpointer, open_vad: Callable[[], Vad]) -> None:
        self._endpointer = endpointer
        self._open_vad = open_vad
        self._vad = open_vad()
        self._pcm = bytearray()  # from the boundary on
        self._at = 0  # byte of the next frame

    def append(self, pcm: bytes) -> list[VoiceMark]:
        """Process canonical PCM; return the marks that it leads to."""
        self._pcm += pcm
        marks = []
        while self._at + FRAME_BYTES <= len(self._pcm):
            frame = np.frombuffer(bytes(self._pcm[self._at : self._at + FRAME_BYTES]), "<i2")
            self._at += FRAME_BYTES
            before = self._endpointer.boundary_sample
            mark = self._endpointer.on_frame(self._vad(frame.astype(np.float32) / np.float32(32768)))
            if mark is not None:
                marks.append(mark)
            self._follow_boundary(before)
        return marks

    def end_utterance(self) -> list[VoiceMark]:
        """End the utterance at the newest sample; return the marks."""
        before = self._endpointer.boundary_sample
        marks = self._endpointer.end_utterance(before + len(self._pcm) // BYTES_PER_SAMPLE)
        self._follow_boundary(before)
        return marks

    def _follow_boundary(self, before: int) -> None:
        if self._endpointer.boundary_sample != before:
            del self._pcm[: (self._endpointer.boundary_sample - before) * BYTES_PER_SAMPLE]
            self._vad, self._at = self._open_vad(), 0


def loudness(frame: NDArray[np.float32]) -> float:
    """Return how loud a frame is, 0..1: a model that knows no speech."""
    return float(np.sqrt(np.mean(np.square(frame))))
