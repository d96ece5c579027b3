"""One transcription, timed, and the order in which many of them are taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, TypeVar

from specwhisper.speculation.statistics import SpeculationStatistics
from specwhisper.types import Mode

T = TypeVar("T")

TRANSFORMERS = "transformers"
TRANSFORMERS_2_THREADS = "transformers, 2 threads"
ASSISTED = "transformers assisted"


@dataclass(frozen=True, slots=True, order=True)
class Arm:
    """Something to measure: a system, asked for timestamps or not."""

    system: str
    timestamps: bool

    def __str__(self) -> str:
        return f"{self.system} {'with' if self.timestamps else 'without'} timestamps"


@dataclass(frozen=True, slots=True)
class Measurement:
    """How long one recording took and what came out.

    Attributes
    ----------
    tokens : text and timestamps of all segments; special tokens left out.
    wall_s : first audio in to last text out.
    encode_s : the target's encoder in it; for our arms with the log-mel features.
    statistics : the session's own counts; ``None`` for transformers.
    """

    tokens: tuple[int, ...]
    wall_s: float
    encode_s: float
    statistics: SpeculationStatistics | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A measurement and where it belongs."""

    round: int
    arm: Arm
    sample: str
    measurement: Measurement = field(repr=False)


def all_arms(*, two_threads: bool) -> list[Arm]:
    """Return every arm; transformers' assisted generation is wrong with timestamps and only runs without."""
    plain = [TRANSFORMERS, *([TRANSFORMERS_2_THREADS] if two_threads else [])]
    timed = [Arm(system, True) for system in (*plain, *Mode)]
    return timed + [Arm(system, False) for system in (*plain, ASSISTED, *Mode)]


def schedule(
    arms: Sequence[Arm], samples: Sequence[T], num_rounds: int, seed: int
) -> Iterator[tuple[int, Arm, T]]:
    """Interleave: every round takes all arms in a new order, each with all samples."""
    random = Random(seed)
    for number in range(num_rounds):
        for arm in random.sample(arms, len(arms)):
            for sample in samples:
                yield number, arm, sample


def differences(taken: Iterable[Taken]) -> dict[Arm, list[str]]:
    """Describe where an arm's tokens differ from target-only's, per differing arm."""
    taken = list(taken)
    reference: dict[tuple[bool, str], tuple[int, ...]] = {}
    for one in taken:
        if one.arm.system == Mode.TARGET_ONLY:
            reference.setdefault((one.arm.timestamps, one.sample), one.measurement.tokens)
    found: dict[Arm, list[str]] = {}
    for one in taken:
        expected = reference[one.arm.timestamps, one.sample]
        tokens = one.measurement.tokens
        if tokens != expected:
            pairs = zip(tokens, expected, strict=False)
            at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(tokens), len(expected)))
            found.setdefault(one.arm, []).append(
                f"{one.arm}, {one.sample}, round {one.round}: token {at} differs from target-only"
            )
    return found


def keep_text(tokens: Iterable[int], end_of_text: int, timestamp_begin: int) -> tuple[int, ...]:
    """Leave out special tokens."""
    return tuple(token for token in tokens if token < end_of_text or token >= timestamp_begin)


def facts(one: Taken) -> dict[str, Any]:
    """Return a measurement as plain values."""
    statistics = one.measurement.statistics
    return {
        "round": one.round,
        "system": str(one.arm.system),
        "timestamps": one.arm.timestamps,
        "sample": one.sample,
        "wall_s": one.measurement.wall_s,
        "encode_s": one.measurement.encode_s,
        "statistics": None if statistics is None else asdict(statistics),
    }
