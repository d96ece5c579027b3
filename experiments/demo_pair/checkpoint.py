"""What a stopped training needs to go on, saved every two minutes."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn

from . import parallel
from .schedule import LESSONS, Schedule, Stage

EVERY_S = 120


class Checkpoint:
    """Weights and progress in one file; the optimiser begins anew, with its warm-up."""

    def __init__(self, path: Path, schedule: Schedule, **modules: nn.Module) -> None:
        self._path = path
        self._schedule = schedule
        self._modules = modules
        self._saved = time.monotonic()
        if path.exists():
            state = torch.load(path)
            for name, module in modules.items():
                module.load_state_dict(state[name])
            schedule.begin = state["progress"]

    def save(self, now: bool) -> None:
        """Replace the file in one go, if it is time to or must be now."""
        if parallel.rank() != 0 or not (now or time.monotonic() - self._saved > EVERY_S):
            return
        state: dict[str, object] = {name: module.state_dict() for name, module in self._modules.items()}
        state["progress"] = self._schedule.progress
        part = self._path.with_suffix(".part")
        torch.save(state, part)
        part.replace(self._path)
        self._saved = time.monotonic()


def continue_training(earlier: Path, path: Path) -> None:
    """Begin a training with what another one has learnt, at the first lesson about everything."""
    state = torch.load(earlier)
    state["progress"] = next(lesson.start for lesson in LESSONS if lesson.stage is Stage.FULL)
    for name, value in state["averaged"].items():
        if name.startswith("module."):
            state["weights"][name.removeprefix("module.")] = value
    torch.save(state, path)
