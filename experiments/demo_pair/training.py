"""Target and drafts share this: optimiser and training step."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import distributed, nn

from experiments.demo_pair import processes
from experiments.demo_pair.schedule import Schedule

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
