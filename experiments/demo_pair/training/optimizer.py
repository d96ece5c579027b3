"""Muon for the matrices of the layers, AdamW for everything else."""

from __future__ import annotations

import torch
from torch import distributed, nn

from experiments.demo_pair.training import parallel

ADAMW_SHARE = 0.5  # of Muon's learning rate


class Optimizer:
    """Muon learns in fewer steps than AdamW alone but orthogonalises every gradient.

    Each process does that for its own share of the matrices and sends the others the result.
    """

    def __init__(self, module: nn.Module) -> None:
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self._names = {p: name for name, p in trained}
        matrices = [p for name, p in trained if ".layers." in name and p.ndim == 2]
        rest = [p for name, p in trained if not (".layers." in name and p.ndim == 2)]
        self._shares = [matrices[i :: parallel.processes()] for i in range(parallel.processes())]
        self._optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                self._shares[parallel.rank()], weight_decay=0.02, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
        ]

    def step(self, rate: float) -> None:
        """Change the weights by their gradients, which are the same in every process."""
        for optimizer in self._optimizers:
            share = 1.0 if isinstance(optimizer, torch.optim.Muon) else ADAMW_SHARE
            for group in optimizer.param_groups:
                group["lr"] = share * rate
            optimizer.step()
        if parallel.processes() == 1:
            return
        for owner, share in enumerate(self._shares):
            flat = torch.cat([p.detach().flatten() for p in share])
            distributed.broadcast(flat, owner)
            for p, part in zip(share, flat.split([p.numel() for p in share]), strict=True):
                p.data.copy_(part.view_as(p))

    def state(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return what is remembered of each weight by its name, complete in the first process alone."""
        mine = {
            self._names[p]: dict(remembered)
            for optimizer in self._optimizers
            for p, remembered in optimizer.state.items()
        }
        merged: dict[str, dict[str, torch.Tensor]] = {}
        for part in parallel.gathered(mine):
            merged |= part
        return merged

    def load(self, state: dict[str, dict[str, torch.Tensor]]) -> None:
        """Remember what an earlier process did, however many there were then."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if self._names[p] in state:
                        optimizer.state[p] = dict(state[self._names[p]])
