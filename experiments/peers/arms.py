"""The arms that are compared: system, part and precision, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec

from specwhisper.speculation.statistics import SpeculationStatistics


class Part(StrEnum):
    """The demo pair with its real weights, or another shape with random ones."""

    DEMO = "demo pair"
    SHAPE = "shape"


class System(StrEnum):
    """A program that transcribes."""

    TARGET_ONLY = "target-only"
    ONE_PROCESS = "one-process"
    ONE_PROCESS_DISTIL = "one-process, distilled draft"
    ONE_PROCESS_BATCHED = "one-process, batched"
    TRANSFORMERS = "transformers"
    ASSISTED = "transformers assisted, distilled draft"
    FASTER_WHISPER = "faster-whisper"
    FASTER_WHISPER_BATCHED = "faster-whisper, batched"
    OPENAI_WHISPER = "openai-whisper"
    WHISPER_CPP = "whisper.cpp"

    @property
    def is_ours(self) -> bool:
        """Whether it is this project."""
        return self.value.startswith(("target-only", "one-process"))


OURS = (System.TARGET_ONLY, System.ONE_PROCESS, System.ONE_PROCESS_DISTIL, System.ONE_PROCESS_BATCHED)
OURS_OF_SHAPE = (System.TARGET_ONLY, System.ONE_PROCESS)  # replay has one draft, and windows one by one
# Assisted generation with random weights agrees on nothing; a batch in lock step does not report when each of
# its windows ends.
NOT_ON_SHAPES = (System.ASSISTED, System.FASTER_WHISPER_BATCHED)
FLOAT32, FLOAT16, INT8 = "float32", "float16", "int8"
PRECISIONS = {  # a system that is not named runs in float32 only
    System.TARGET_ONLY: (FLOAT32, INT8),
    System.ONE_PROCESS: (FLOAT32, INT8),
    System.ONE_PROCESS_DISTIL: (FLOAT32, INT8),
    System.ONE_PROCESS_BATCHED: (FLOAT32, INT8),
    System.FASTER_WHISPER: (FLOAT32, INT8),
    System.FASTER_WHISPER_BATCHED: (FLOAT32, INT8),
    System.WHISPER_CPP: (FLOAT16, INT8),  # it has no float32
}
NEEDS = {  # packages beyond our own
    System.FASTER_WHISPER: ("ctranslate2", "faster_whisper"),
    System.FASTER_WHISPER_BATCHED: ("ctranslate2", "faster_whisper"),
    System.OPENAI_WHISPER: ("whisper", "numba", "tiktoken"),
    System.WHISPER_CPP: ("_pywhispercpp",),
}
FIXED_VOCABULARY = "has one fixed vocabulary, which is not the demo pair's"


@dataclass(frozen=True, slots=True, order=True)
class Arm:
    """Something to measure; a shape has no timestamps of its own, so there they are always said to be on."""

    part: Part
    system: System
    precision: str
    timestamps: bool

    @property
    def is_quick(self) -> bool:
        """Whether a short run has it."""
        is_batched = self.system in (System.ONE_PROCESS_BATCHED, System.FASTER_WHISPER_BATCHED)
        return (
            self.precision in (FLOAT32, FLOAT16)
            and not is_batched
            and self.timestamps == (self.part is Part.SHAPE)
        )

    def __str__(self) -> str:
        with_timestamps = "with timestamps" if self.timestamps else "without timestamps"
        return f"{self.part}: {self.system}, {self.precision}, {with_timestamps}"


@dataclass(frozen=True, slots=True)
class Piece:
    """A window of a recording that is cut out for peers with random weights.

    Attributes
    ----------
    pcm : canonical, up to 30 s.
    num_tokens : to be written, whatever they are: as many as the demo target wrote there, end-of-text
        included.
    """

    pcm: bytes = field(repr=False)
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Run:
    """All recordings, transcribed once.

    Attributes
    ----------
    wall_s : samples in memory to the last token; features, encoder and decoder.
    tokens : of each recording, special ones included.
    statistics : ours only, all recordings together.
    """

    wall_s: float
    tokens: tuple[tuple[int, ...], ...]
    statistics: SpeculationStatistics | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A run and where it belongs."""

    round: int
    arm: Arm
    run: Run


def all_arms(parts: Sequence[Part], *, quick: bool = False) -> tuple[list[Arm], dict[Arm, str]]:
    """Return what can be measured here, and why the rest cannot; ``quick`` leaves much of it out."""
    arms, missing = [], {}
    for part in parts:
        for system in System:
            for precision in PRECISIONS.get(system, (FLOAT32,)):
                for timestamps in _timestamps(part, system):
                    arm = Arm(part, system, precision, timestamps)
                    if quick and not arm.is_quick:
                        continue
                    if part is Part.DEMO and system in (System.OPENAI_WHISPER, System.WHISPER_CPP):
                        missing[arm] = FIXED_VOCABULARY
                    elif lacking := [name for name in NEEDS.get(system, ()) if find_spec(name) is None]:
                        missing[arm] = f"not installed: {', '.join(lacking)}"
                    else:
                        arms.append(arm)
    return arms, missing


def _timestamps(part: Part, system: System) -> tuple[bool, ...]:
    """Return whether a system runs with or without timestamps; assisted generation is wrong with them."""
    if part is Part.DEMO:
        return (False,) if system is System.ASSISTED else (True, False)
    is_known = system in OURS_OF_SHAPE if system.is_ours else system not in NOT_ON_SHAPES
    return (True,) if is_known else ()
