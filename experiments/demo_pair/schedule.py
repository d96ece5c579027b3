"""How far a training is: its learning rate, and what is being learnt."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum

import numpy as np


class Stage(Enum):
    """What is being learnt, since on full windows nothing is learnt for a long time.

    LISTEN trains the encoder alone, READ adds the decoder, without timestamps, both on single
    short clean sentences; FULL is everything, on windows that grow longer.
    """

    LISTEN = 0
    READ = 1
    FULL = 2


LISTENING_LOSS = 1.0  # the CTC loss that ends LISTEN
READING_LOSS = 1.8  # the decoder's loss that ends READ


@dataclass
class Schedule:
    """Learning rate over the process's own CPU time, so that other work does not cut it short.

    Warm-up goes by steps, then a half cosine down to zero. A training that was stopped begins at
    the progress it had.
    """

    minutes: float
    peak: float
    warmup: int = 100
    begin: float = 0.0
    stage: Stage = Stage.LISTEN
    started: float | None = None

    @property
    def progress(self) -> float:
        """How much of the training is done."""
        if self.started is None:
            self.started = time.process_time()
        return min(1.0, self.begin + (time.process_time() - self.started) / (60 * self.minutes))

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        cosine = 0.5 * (1 + np.cos(np.pi * self.progress))
        return self.peak * min(1.0, (step + 1) / self.warmup) * max(cosine, 0.01)

    def advance(self, decoder_loss: float, ctc_loss: float) -> None:
        """Go on to the next stage once a loss is low enough."""
        if self.stage is Stage.LISTEN and ctc_loss < LISTENING_LOSS:
            self.stage = Stage.READ
        elif self.stage is Stage.READ and decoder_loss < READING_LOSS:
            self.stage = Stage.FULL
