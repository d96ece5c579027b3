"""Target and drafts share this: schedule, optimiser and training step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import distributed, nn

from experiments.demo_pair import processes


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


ADAMW_SHARE = 0.5  # AdamW's learning rate over Muon's
CPU_FLAGS = Path("/proc/cpuinfo")


@cache
def _multiplies_bfloat16() -> bool:
    """Whether bfloat16 is faster than float32 here; elsewhere it is emulated and slower."""
    flags = CPU_FLAGS.read_text() if CPU_FLAGS.exists() else ""
    return "avx512_bf16" in flags or "amx_bf16" in flags


def mixed() -> torch.autocast:
    """Return a context whose matrix products are in bfloat16 if that pays; weights stay as they are."""
    return torch.autocast("cpu", torch.bfloat16, enabled=_multiplies_bfloat16())


class Optimizer:
    """Muon for the matrices of the layers, AdamW for everything else.

    Muon learns in fewer steps than AdamW alone but orthogonalises every gradient. Each process does that for
    its own share of the matrices and sends the others the result.
    """

    def __init__(self, module: nn.Module) -> None:
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        matrices = [p for name, p in trained if ".layers." in name and p.ndim == 2]
        rest = [p for name, p in trained if not (".layers." in name and p.ndim == 2)]
        self._shares = [matrices[i :: processes.count()] for i in range(processes.count())]
        self._muon = torch.optim.Muon(
            self._shares[processes.rank()], weight_decay=0.02, adjust_lr_fn="match_rms_adamw"
        )
        self._adamw = torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0, fused=True)

    def step(self, rate: float) -> None:
        for optimizer, share in ((self._muon, 1.0), (self._adamw, ADAMW_SHARE)):
            for group in optimizer.param_groups:
                group["lr"] = share * rate
            optimizer.step()
        if processes.count() > 1:
            for owner, matrices in enumerate(self._shares):
                for matrix in matrices:
                    distributed.broadcast(matrix.detach(), owner)


class Training:
    """A module that learns by a schedule."""

    def __init__(self, schedule: Schedule, learner: nn.Module) -> None:
        self.schedule = schedule
        self._learner = learner
        self._optimizer = Optimizer(learner)

    def step(self, loss: torch.Tensor, rate: float, numbers: list[float]) -> tuple[list[float], bool]:
        """Take one step with clipped gradients.

        Returns the numbers' averages over all processes, and whether the training is over.
        """
        # Processes have to agree on when to stop, since they do it together.
        over = float(self.schedule.progress >= 1.0)
        self._learner.zero_grad(set_to_none=True)
        loss.backward()
        *means, over = processes.average(self._learner, [*numbers, over])
        nn.utils.clip_grad_norm_(self._learner.parameters(), 1.0)
        self._optimizer.step(rate)
        return means, bool(over)
