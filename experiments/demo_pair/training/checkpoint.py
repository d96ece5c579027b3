"""Training state, saved every few minutes so that a stopped training can continue."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
from torch import nn

from experiments.demo_pair.training import parallel
from experiments.demo_pair.training.optimizer import Optimizer
from experiments.demo_pair.training.schedule import LESSONS, Schedule, Stage

EVERY_S = 240


class Checkpoint:
    """Weights, optimiser state and progress in one file, which is replaced in one go."""

    def __init__(self, path: Path, schedule: Schedule, optimizer: Optimizer, **modules: nn.Module) -> None:
        self._path = path
        self._schedule = schedule
        self._optimizer = optimizer
        self._modules = modules
        self._saved = time.monotonic()
        if path.exists():
            self._load(torch.load(path))

    def _load(self, state: dict) -> None:
        for name, module in self._modules.items():
            module.load_state_dict(state[name])
        self._optimizer.load(state["optimizer"])
        self._schedule.load(state["schedule"])

    @property
    def is_due(self) -> bool:
        """Whether it is time to save; processes have to agree on it, since all of them save together."""
        return time.monotonic() - self._saved > EVERY_S

    def save(self) -> None:
        """Collect every process's part and replace the file."""
        self._saved = time.monotonic()
        optimizer = self._optimizer.state()
        if parallel.rank() != 0:
            return
        state: dict[str, object] = {name: module.state_dict() for name, module in self._modules.items()}
        state |= {"optimizer": optimizer, "schedule": self._schedule.state()}
        write(state, self._path)


def write(state: dict[str, object], path: Path) -> None:
    """Replace a file in one go, so that a process killed meanwhile leaves the earlier one."""
    part = path.with_suffix(".part")
    with part.open("wb") as out:
        torch.save(state, out)
        out.flush()
        os.fsync(out.fileno())
    part.replace(path)


def continue_training(earlier: Path, path: Path, minutes: float) -> None:
    """Begin a training with what another one has learnt, at the first lesson about everything."""
    state = torch.load(earlier)
    start = next(lesson.start for lesson in LESSONS if lesson.stage is Stage.FULL)
    state["schedule"] = Schedule(minutes, peak=0.0, begin=start).state()
    state["optimizer"] = {}
    for name, value in state["averaged"].items():
        if name.startswith("module."):
            state["weights"][name.removeprefix("module.")] = value
    write(state, path)
