"""The schedule of a training: its learning rate, its stage, and the lengths of its windows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np


class Stage(Enum):
    """The task of a stage: with all tasks at once, nothing is learnt for a long time."""

    LISTEN = "the encoder alone, by CTC"
    READ = "the decoder, on an encoder that does not change"
    FULL = "everything"

    @property
    def changes_encoder(self) -> bool:
        return self in (Stage.LISTEN, Stage.FULL)

    @property
    def uses_decoder(self) -> bool:
        return self in (Stage.READ, Stage.FULL)


@dataclass(frozen=True)
class Lesson:
    """The task from some share of the training on; ``lengths_s`` are window lengths and their weights.

    Plain windows are clean and have neither timestamps nor anything before them. ``depth`` is how many
    decoder layers take part; the others begin as identities, so that they can join late. ``misread`` is the
    share of its own past words that the decoder is given wrong: a grammar is easily guessed, and it shall
    listen.
    """

    start: float
    stage: Stage
    lengths_s: Mapping[float, float]
    is_plain: bool = False
    depth: int = 4
    misread: float = 0.25


LESSONS = (
    Lesson(0.00, Stage.LISTEN, {4.0: 1.0}, is_plain=True),
    Lesson(0.04, Stage.LISTEN, {4.0: 0.5, 8.0: 0.25, 15.0: 0.15, 30.0: 0.1}),
    Lesson(0.28, Stage.READ, {4.0: 1.0}, is_plain=True),
    Lesson(0.36, Stage.READ, {4.0: 0.4, 8.0: 0.4, 15.0: 0.2}),
    Lesson(0.46, Stage.FULL, {4.0: 0.1, 8.0: 0.3, 15.0: 0.3, 30.0: 0.3}),
    Lesson(0.85, Stage.FULL, {8.0: 0.2, 15.0: 0.2, 30.0: 0.6}, depth=8, misread=0.05),
)


@dataclass
class Schedule:
    """Progress over the process's own CPU time, so that other work does not cut a training short.

    The learning rate warms up over steps, stays at its peak for a share ``hold`` of the training, and falls
    along half a cosine.
    """

    minutes: float
    peak: float
    warmup: int = 100
    hold: float = 0.0
    steps: int = 0
    stage: Stage | None = None
    started: float | None = None

    @property
    def progress(self) -> float:
        if self.started is None:
            self.started = time.process_time()
        return min(1.0, (time.process_time() - self.started) / (60 * self.minutes))

    @property
    def lesson(self) -> Lesson:
        progress = self.progress
        return next(lesson for lesson in reversed(LESSONS) if progress >= lesson.start)

    def next_rate(self, stage: Stage | None = None) -> float:
        """Count a step and return its learning rate; what begins to learn something new warms up again."""
        if stage is not self.stage:
            self.stage, self.steps = stage, 0
        self.steps += 1
        falling = max(0.0, self.progress - self.hold) / (1 - self.hold)
        cosine = 0.5 * (1 + np.cos(np.pi * falling))
        return self.peak * min(1.0, self.steps / self.warmup) * max(cosine, 0.01)
