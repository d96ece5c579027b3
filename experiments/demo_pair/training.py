"""Target and drafts share this: optimiser, training step, and the state of a stopped one."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

import torch
from torch import distributed, nn

from experiments.demo_pair import processes
from experiments.demo_pair.schedule import Schedule

ADAMW_SHARE = 0.5  # of Muon's learning rate
SAVED_EVERY_S = 240
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
        self._names = {p: name for name, p in trained}
        matrices = [p for name, p in trained if ".layers." in name and p.ndim == 2]
        rest = [p for name, p in trained if not (".layers." in name and p.ndim == 2)]
        self._shares = [matrices[i :: processes.count()] for i in range(processes.count())]
        self._muon = torch.optim.Muon(
            self._shares[processes.rank()], weight_decay=0.02, adjust_lr_fn="match_rms_adamw"
        )
        self._adamw = torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0, fused=True)

    def step(self, rate: float) -> None:
        """Change the weights by their gradients, which are the same in every process."""
        for optimizer, share in ((self._muon, 1.0), (self._adamw, ADAMW_SHARE)):
            for group in optimizer.param_groups:
                group["lr"] = share * rate
            optimizer.step()
        if processes.count() > 1:
            for owner, matrices in enumerate(self._shares):
                for matrix in matrices:
                    distributed.broadcast(matrix.detach(), owner)

    def state(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return what is remembered of each weight by its name, complete in the first process alone."""
        mine = {
            self._names[p]: dict(remembered)
            for optimizer in (self._muon, self._adamw)
            for p, remembered in optimizer.state.items()
        }
        if processes.count() == 1:
            return mine
        parts: list = [None] * processes.count()
        distributed.gather_object(mine, parts if processes.rank() == 0 else None)
        return {name: kept for part in parts if part for name, kept in part.items()}

    def load(self, state: dict[str, dict[str, torch.Tensor]]) -> None:
        """Remember what an earlier training did, however many processes there were then."""
        for optimizer in (self._muon, self._adamw):
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if self._names[p] in state:
                        optimizer.state[p] = dict(state[self._names[p]])


class Training:
    """Modules that learn by a schedule; their state is saved every few minutes in one file.

    A training whose file exists continues there.
    """

    def __init__(self, path: Path, schedule: Schedule, learner: nn.Module, **others: nn.Module) -> None:
        self.schedule = schedule
        self._path = path
        self._learner = learner
        self._modules = {"weights": learner, **others}
        self._optimizer = Optimizer(learner)
        self._saved = time.monotonic()
        if path.exists():
            state = torch.load(path)
            for name, module in self._modules.items():
                module.load_state_dict(state[name])
            self._optimizer.load(state["optimizer"])
            schedule.load(state["schedule"])

    def step(self, loss: torch.Tensor, rate: float, numbers: list[float]) -> tuple[list[float], bool]:
        """Take one step with clipped gradients.

        Returns the numbers' averages over all processes, and whether the training is over.
        """
        # Processes have to agree on when to save and to stop, since they do it together.
        due = time.monotonic() - self._saved > SAVED_EVERY_S
        flags = [float(due), float(self.schedule.progress >= 1.0)]
        self._learner.zero_grad(set_to_none=True)
        loss.backward()
        *means, due, over = processes.average(self._learner, [*numbers, *flags])
        nn.utils.clip_grad_norm_(self._learner.parameters(), 1.0)
        self._optimizer.step(rate)
        if due or over:
            self.save()
        return means, bool(over)

    def save(self) -> None:
        """Collect every process's part and replace the file."""
        self._saved = time.monotonic()
        optimizer = self._optimizer.state()
        if processes.rank() == 0:
            state: dict[str, object] = {name: module.state_dict() for name, module in self._modules.items()}
            _replace(self._path, state | {"optimizer": optimizer, "schedule": self.schedule.state()})


def _replace(path: Path, state: dict[str, object]) -> None:
    """Write a file in one go, so that a process killed meanwhile leaves the earlier one."""
    part = path.with_suffix(".part")
    with part.open("wb") as out:
        torch.save(state, out)
        out.flush()
        os.fsync(out.fileno())
    part.replace(path)
