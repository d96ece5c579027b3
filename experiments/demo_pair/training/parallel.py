"""Data-parallel training in single-threaded processes.

On a shared machine this is faster than one process with a thread per core, whose threads wait for
each other at every operation; here the processes meet once per step.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import torch
from torch import distributed, multiprocessing, nn

T = TypeVar("T")
TIMEOUT = timedelta(days=30)  # processes may be stopped (SIGSTOP) for as long as that


def _work(rank: int, count: int, store: str, function: Callable, arguments: tuple) -> None:
    torch.set_num_threads(1)
    if count > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=count, timeout=TIMEOUT
        )
    function(*arguments)
    if count > 1:
        distributed.destroy_process_group()


def run(count: int, store: str, function: Callable, *arguments: object) -> None:
    """Call a function in `count` processes that share gradients; `store` is a scratch file."""
    if os.path.exists(store):
        os.remove(store)
    multiprocessing.spawn(_work, (count, store, function, arguments), nprocs=count)


def rank() -> int:
    """Return this process's number."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def processes() -> int:
    """Return how many processes train together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def agreed(value: T) -> T:
    """Return the first process's value in all of them."""
    if processes() == 1:
        return value
    values = [value]
    distributed.broadcast_object_list(values)
    return values[0]


def gathered(value: T) -> list[T]:
    """Return all processes' values in the first of them, and none in the others."""
    if processes() == 1:
        return [value]
    values: list = [None] * processes()
    distributed.gather_object(value, values if rank() == 0 else None)
    return values if rank() == 0 else []


def average(module: nn.Module, numbers: list[float]) -> list[float]:
    """Average the gradients, and some numbers with them, over all processes."""
    if processes() == 1:
        return numbers
    parameters = [p for p in module.parameters() if p.grad is not None]
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([*(g.flatten() for g in gradients), torch.tensor(numbers)])
    distributed.all_reduce(flat)
    flat /= processes()
    parts = flat.split([*(g.numel() for g in gradients), len(numbers)])
    for parameter, part in zip(parameters, parts[:-1], strict=True):
        parameter.grad = part.view_as(parameter)
    return parts[-1].tolist()
