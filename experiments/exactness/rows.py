"""The rows of the matrix, and how they are decoded: one on each core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Protocol, TypeVar

from rich.console import Console
from transformers.utils import logging

from experiments.common.servers.processes import available_cores
from experiments.exactness.cases import (
    BATCHES,
    DISTIL,
    EN40,
    MANY,
    OPTIONS,
    SHAPES,
    TRUE_SHAPES,
    WHISPERS,
    Case,
)
from experiments.exactness.demo import DemoPair
from experiments.exactness.matrix import Result, run_row
from experiments.exactness.prepared import Prepared
from experiments.exactness.reduced import Reduced, run_reduced
from specwhisper.model.threads import limit_threads


class Named(Protocol):
    """Something to decode, with a name."""

    @property
    def name(self) -> str:
        """Shown with the progress."""


N, T = TypeVar("N", bound=Named), TypeVar("T")
QUICK = ("tiny-like", "no-timestamps", "prompt", "no-speech", "language-detection", "sampling-seed-1")


@dataclass(frozen=True, slots=True)
class Row:
    """A row to be decoded; ``make`` prepares its models, in whichever process decodes it."""

    name: str
    make: Callable[[], Prepared]
    num_slots: int = 2


def rows(quick: bool, seed: int, only: str) -> list[Row]:
    """Return every row."""
    cases = (*MANY, *SHAPES, *OPTIONS, *WHISPERS, *DISTIL)
    if quick:
        cases = (replace(case, assisted=False) for case in cases if case.name in QUICK)
        chosen = [Row(case.name, partial(Prepared, reseeded(case, seed))) for case in cases]
        return [row for row in chosen if only in row.name]
    chosen = [Row(case.name, partial(Prepared, reseeded(case, seed))) for case in cases]
    for case in BATCHES:
        chosen += [
            Row(f"{case.name}, batch {n}", partial(Prepared, reseeded(case, seed)), n) for n in (1, 4, 8)
        ]
    for timestamps in (True, False):
        options = replace(EN40, max_new_tokens=None, timestamps=timestamps)
        name = f"demo pair, {'with' if timestamps else 'without'} timestamps"
        chosen.append(Row(name, partial(DemoPair, options)))
    chosen += [Row(case.name, partial(Prepared, reseeded(case, seed)), 1) for case in TRUE_SHAPES]
    return [row for row in chosen if only in row.name]


def decoded(run: Callable[[N], T], chosen: Sequence[N], console: Console) -> list[T]:
    """Decode rows or drawn checkpoints, one on each core, and print the progress."""
    processes = ProcessPoolExecutor(
        len(available_cores()), mp_context=get_context("spawn"), initializer=be_quiet_and_single
    )
    with processes, console.status("") as status:
        results = []
        for row, result in zip(chosen, processes.map(run, chosen), strict=True):
            results.append(result)
            status.update(f"{len(results)} of {len(chosen)}, last: {row.name}")
    return results


def be_quiet_and_single() -> None:
    """Prepare a process: the models are small, and a second thread would only wait."""
    limit_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def in_full(row: Row) -> Result:
    """Decode a row and compare."""
    return run_row(row.name, row.make(), row.num_slots)


def in_reduced(row: Row, dtype: str) -> Reduced:
    """Decode a row in reduced precision."""
    return run_reduced(row.name, row.make(), row.num_slots, dtype)


def reseeded(case: Case, seed: int) -> Case:
    """Return the case with other weights and other recordings."""
    return case if seed == 0 else replace(case, shape=replace(case.shape, seed=case.shape.seed + 1000 * seed))
