"""Data-parallel training in single-threaded processes.

On a shared machine this is faster than one process with a thread per core, whose threads wait for
each other at every operation; here the processes meet once per step.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
from torch import distributed, multiprocessing, nn
from transformers.utils import logging

T = TypeVar("T")
TIMEOUT = timedelta(days=30)  # processes may be stopped (SIGSTOP) for as long as that


def _work(rank: int, count: int, store: Path, function: Callable, arguments: tuple) -> None:
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    distributed.init_process_group(
        "gloo", init_method=f"file://{store.resolve()}", rank=rank, world_size=count, timeout=TIMEOUT
    )
    function(*arguments)
    distributed.destroy_process_group()


def run(count: int, store: Path, function: Callable, *arguments: object) -> None:
    """Call a function in `count` processes that share gradients; `store` is a scratch file."""
    store.unlink(missing_ok=True)
    multiprocessing.spawn(_work, (count, store, function, arguments), nprocs=count)


def rank() -> int:
    return distributed.get_rank() if distributed.is_initialized() else 0


def count() -> int:
    return distributed.get_world_size() if distributed.is_initialized() else 1


def agreed(value: T) -> T:
    """Return the first process's value in all of them."""
    values = [value]
    if count() > 1:
        distributed.broadcast_object_list(values)
    return values[0]


def average(module: nn.Module, numbers: list[float]) -> list[float]:
    if count() == 1:
        return numbers
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    flat = torch.cat([*(g.flatten() for g in gradients), torch.tensor(numbers)])
    distributed.all_reduce(flat)
    flat /= count()
    *means, averaged = flat.split([*(g.numel() for g in gradients), len(numbers)])
    for gradient, mean in zip(gradients, means, strict=True):
        gradient.copy_(mean.view_as(gradient))
    return averaged.tolist()
