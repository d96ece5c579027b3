"""Measure how the time of the target's forward pass grows with its tokens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from statistics import median

from experiments.common.servers.processes import Worker
from experiments.latency.sweep.models import Pair
from specwhisper.audio.recording import Recording
from specwhisper.model.choosing import Row
from specwhisper.types import AudioChunk

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 24, 33, 65)  # tokens of a forward pass
NUM_HELD = 60  # tokens in the slot: the middle of a window
NUM_ROUNDS = 15
TOKEN = 0


class ForwardTimes:
    """Times forward passes of a pair's target, in this process."""

    def __init__(self, pair: Pair) -> None:
        self._model = pair.load_forward()
        silence = Recording()
        silence.append(AudioChunk(0, bytes(2), is_last=True))
        self._model.encode(0, silence, 0)
        self._append(NUM_HELD)

    def measure(self, widths: Sequence[int]) -> list[float]:
        """Return the median seconds of forward passes over so many tokens, taken in turns."""
        times: dict[int, list[float]] = {width: [] for width in widths}
        for _ in range(NUM_ROUNDS):
            for width, seconds in times.items():
                started_s = time.perf_counter()
                self._append(width)
                seconds.append(time.perf_counter() - started_s)
                self._model.rollback(0, NUM_HELD)
        return [median(times[width]) for width in widths]

    def _append(self, width: int) -> None:
        self._model.score([Row(0, [TOKEN] * width, width - 1, [TOKEN] * NUM_HELD, timestamps=True)])


def measure_forward_times(pair: Pair, cores: Sequence[int]) -> list[tuple[int, float]]:
    """Return the tokens of a forward pass and its seconds, in a process on these cores."""
    worker = Worker(partial(ForwardTimes, pair), cores=cores)
    try:
        return list(zip(WIDTHS, worker.call("measure", WIDTHS), strict=True))
    finally:
        worker.stop()
