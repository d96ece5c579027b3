"""A target's usage of time: counted in its process, read from outside while it runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.common.replay.model import EncodeOnceModel
from experiments.common.servers.usage import cpu_s
from specwhisper.audio.recording import Recording
from specwhisper.model.checkpoints.checkpoint import Checkpoint
from specwhisper.model.choosing import Row, Scores
from specwhisper.model.threads import num_threads

PROCESS, PASSES, ROWS, FED, FORWARD, ENCODINGS, ENCODE = range(7)  # indices of the counters


@dataclass(frozen=True, slots=True)
class Usage:
    """Running totals of one process; subtract two for the usage in between.

    Attributes
    ----------
    num_forwards, num_rows, num_fed : forward passes, their sessions, and their tokens.
    forward_s, encode_s : CPU time of the forward passes and of the encoder.
    cpu_s : CPU time of the whole process.
    """

    num_forwards: int = 0
    num_rows: int = 0
    num_fed: int = 0
    forward_s: float = 0.0
    num_encodings: int = 0
    encode_s: float = 0.0
    cpu_s: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Usage) -> Usage:
        return Usage(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def batch_size(self) -> float:
        """Mean number of sessions in a forward pass."""
        return self.num_rows / self.num_forwards if self.num_forwards else 0.0

    @property
    def decode_s(self) -> float:
        """CPU time without the encoder: forward passes, the loop around them, messages."""
        return self.cpu_s - self.encode_s

    @property
    def encode_share(self) -> float:
        """Share of the encoder in the CPU time."""
        return self.encode_s / self.cpu_s if self.cpu_s else 0.0


class Meter:
    """Counters of one process, in memory that other processes can map."""

    def __init__(self, counters: NDArray[np.int64] | None = None) -> None:
        self._counters = np.zeros(ENCODE + 1, np.int64) if counters is None else counters

    @staticmethod
    def at(path: Path) -> Meter:
        """Map the counters of a file; create it if it does not exist."""
        if not path.exists():
            np.zeros(ENCODE + 1, np.int64).tofile(path)
        return Meter(np.memmap(path, np.int64, "r+"))

    @property
    def process(self) -> int:
        """Id of the counting process."""
        return int(self._counters[PROCESS])

    def own(self) -> None:
        """Make this process the counting one."""
        self._counters[PROCESS] = os.getpid()

    @contextmanager
    def counting(self, counter: int) -> Iterator[None]:
        """Count the thread's CPU time, multiplied by the model's number of threads."""
        started_ns = time.thread_time_ns()
        yield
        elapsed_ns = time.thread_time_ns() - started_ns
        self._counters[counter] += elapsed_ns * num_threads()

    def count(self, counter: int, number: int = 1) -> None:
        """Add to a counter."""
        self._counters[counter] += number

    def read(self) -> Usage:
        """Return the totals."""
        counters = [int(number) for number in self._counters]
        return Usage(
            counters[PASSES],
            counters[ROWS],
            counters[FED],
            counters[FORWARD] / 1e9,
            counters[ENCODINGS],
            counters[ENCODE] / 1e9,
            cpu_s(self.process),
        )


class MeteredModel(EncodeOnceModel):
    """A Whisper model that counts its forward passes and encodings."""

    def __init__(
        self, checkpoint: Checkpoint, num_slots: int, meter: Meter, *, encode_once: bool = False
    ) -> None:
        super().__init__(checkpoint, num_slots, encode_once=encode_once)
        self._meter = meter

    def encode_anew(self, slot: int, recording: Recording, start_frame: int) -> None:
        """Encode and count it."""
        with self._meter.counting(ENCODE):
            super().encode_anew(slot, recording, start_frame)
        self._meter.count(ENCODINGS)

    def score(self, rows: Sequence[Row]) -> list[Scores]:
        """Run a forward pass and count it."""
        with self._meter.counting(FORWARD):
            scores = super().score(rows)
        self._meter.count(PASSES)
        self._meter.count(ROWS, len(rows))
        self._meter.count(FED, sum(len(row.tokens) for row in rows))
        return scores


def available_mb() -> float:
    """Return the machine's available memory in MB."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024 / 1e6
