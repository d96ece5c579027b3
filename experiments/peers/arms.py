"""The arms that are compared, and what each yields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.common.audio.samples import Sample
from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode

Audio = NDArray[np.float32]


class System(StrEnum):
    TARGET_ONLY = "target-only"
    ONE_PROCESS = "one-process"
    ONE_PROCESS_DISTIL = "one-process, distilled draft"
    ONE_PROCESS_BATCHED = "one-process, batched"
    SERVED_TARGET_ONLY = "target-only over servers"
    SYNC = "sync over servers"
    PIPELINED = "pipelined over servers"
    FULL = "full over servers"
    TRANSFORMERS = "transformers"
    ASSISTED = "transformers assisted, distilled draft"
    FASTER_WHISPER = "faster-whisper"
    FASTER_WHISPER_BATCHED = "faster-whisper, batched"
    OPENAI_WHISPER = "openai-whisper"
    WHISPER_CPP = "whisper.cpp"


SERVED = {
    System.SERVED_TARGET_ONLY: Mode.TARGET_ONLY,
    System.SYNC: Mode.SYNC,
    System.PIPELINED: Mode.PIPELINED,
    System.FULL: Mode.FULL,
}
FIXED = (System.OPENAI_WHISPER, System.WHISPER_CPP)  # have one vocabulary, which is not the demo pair's
OURS = tuple(system for system in System if system.startswith(("target-only", "one-process"))) + tuple(SERVED)
BATCHED = (System.ONE_PROCESS_BATCHED, System.FASTER_WHISPER_BATCHED)
NUM_BATCHED = 8
FLOAT32, FLOAT16, INT8 = "float32", "float16", "int8"
CTRANSLATE2 = (System.FASTER_WHISPER, System.FASTER_WHISPER_BATCHED)
NEEDS = {  # packages beyond our own
    **dict.fromkeys(CTRANSLATE2, ("ctranslate2", "faster_whisper")),
    System.OPENAI_WHISPER: ("whisper", "numba", "tiktoken"),
    System.WHISPER_CPP: ("_pywhispercpp",),
}


def precisions(system: System) -> tuple[str, ...]:
    has_int8 = system in CTRANSLATE2 or (system in OURS and system not in SERVED)
    return (FLOAT32, INT8) if has_int8 else (FLOAT32,)


@dataclass(frozen=True, slots=True, order=True)
class Arm:
    """A system with a precision, with or without timestamps in its text."""

    system: System
    precision: str
    timestamps: bool

    @property
    def name(self) -> str:
        return f"{self.system}, {self.precision}"

    def __str__(self) -> str:
        return f"{self.name}, {'with' if self.timestamps else 'without'} timestamps"

    @property
    def missing(self) -> str:
        """Why it cannot run here; empty if it can."""
        lacking = [name for name in NEEDS.get(self.system, ()) if find_spec(name) is None]
        return f"not installed: {', '.join(lacking)}" if lacking else ""


def arms_of_pair(*, quick: bool) -> list[Arm]:
    """Return the arms on real weights; transformers' assisted generation is wrong with timestamps."""
    return [
        Arm(system, precision, timestamps)
        for timestamps in ((False,) if quick else (True, False))
        for system in System
        for precision in precisions(system)
        if system not in FIXED
        and not (timestamps and system is System.ASSISTED)
        and not (quick and (precision == INT8 or system in BATCHED))
    ]


@dataclass(frozen=True, slots=True)
class Run:
    """All recordings, transcribed once.

    Attributes
    ----------
    wall_s : seconds from samples in memory to the last token, for each recording or batch.
    tokens : text and timestamps of each recording.
    statistics : counts of all recordings together, for our arms.
    """

    wall_s: tuple[float, ...]
    tokens: tuple[tuple[int, ...], ...]
    statistics: SpeculationStatistics = field(default_factory=SpeculationStatistics)


def timed(recordings: Sequence[Sample], transcribe: Callable[[Audio], Iterable[int]]) -> Run:
    """Transcribe one recording after the other."""
    wall_s, tokens = [], []
    for recording in recordings:
        audio = floats(recording.pcm)
        started_s = perf_counter()
        tokens.append(tuple(transcribe(audio)))
        wall_s.append(perf_counter() - started_s)
    return Run(tuple(wall_s), tuple(tokens))


def floats(pcm: bytes) -> Audio:
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)


def without_specials(tokens: Iterable[int], special: tuple[int, int]) -> tuple[int, ...]:
    """Return text and timestamps; ``special`` are the first id that is neither, and one past the last."""
    return tuple(token for token in tokens if not special[0] <= token < special[1])


def facts(arm: Arm, run: Run) -> dict[str, Any]:
    """Return a run as JSON values, with the number of tokens of each recording."""
    return asdict(arm) | asdict(run) | {"arm": str(arm), "tokens": [*map(len, run.tokens)]}
