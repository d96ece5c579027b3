"""Passes of this tree's decoders beside those of an earlier tree, in turns, on one thread each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random

from rich.console import Console
from rich.progress import track
from rich.table import Table

from experiments.common.bench.report import ROOT, Bar
from experiments.common.bench.stats import ratio_of_medians, spread
from specwhisper.errors import SpecWhisperError

SIZES = ((1, 1), (1, 5), (8, 1), (8, 5))
DTYPES = ("float32", "int8")
STEPPER = Path(__file__).with_name("stepper.py")


@dataclass(slots=True)
class Pair:
    """Milliseconds of processor time per pass, round after round, of this tree and the earlier one."""

    name: str
    dtype: str
    rows: int
    width: int
    now_ms: list[float] = field(default_factory=list)
    before_ms: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name}, {self.dtype}, {self.rows} x {self.width}"


def compare(folders: Mapping[str, Path], tree: Path, rounds: int, seed: int, console: Console) -> list[Pair]:
    """Time every checkpoint, dtype and size in both trees, in a new order each round.

    Parameters
    ----------
    folders : of checkpoints, by name.
    tree : the earlier tree's folder.

    Raises
    ------
    SpecWhisperError : if the earlier tree cannot step these checkpoints.
    """
    pairs = [Pair(name, dtype, *size) for name, dtype, size in product(folders, DTYPES, SIZES)]
    random = Random(seed)
    with _stepper(ROOT) as now, _stepper(tree) as before:
        for _ in track(
            range(rounds), description="this tree and the earlier", console=console, transient=True
        ):
            for pair in random.sample(pairs, len(pairs)):
                line = f"{folders[pair.name]}\t{pair.dtype}\t{pair.rows}\t{pair.width}"
                pair.now_ms.append(_ask(now, line))
                pair.before_ms.append(_ask(before, line))
    return pairs


@contextmanager
def _stepper(tree: Path) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join(map(str, [tree, *{found.parent for found in tree.glob("*/specwhisper_*")}]))
    with subprocess.Popen(
        [sys.executable, str(STEPPER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _ask(process: subprocess.Popen[str], line: str) -> float:
    assert process.stdin is not None and process.stdout is not None
    print(line, file=process.stdin, flush=True)
    answer = process.stdout.readline()
    if not answer:
        raise SpecWhisperError(f"A tree ended at '{line}': its error is above.")
    return float(answer)


def print_pairs(pairs: list[Pair], seed: int, console: Console) -> None:
    """Print both trees' times and their ratio."""
    table = Table("decoder", "sessions x tokens", "ms now (quartiles)", "ms before", "now / before")
    for pair in pairs:
        table.add_row(
            f"{pair.name}, {pair.dtype}",
            f"{pair.rows} x {pair.width}",
            f"{spread(pair.now_ms):.2f}",
            f"{spread(pair.before_ms):.2f}",
            str(ratio_of_medians(pair.now_ms, pair.before_ms, seed=seed)),
        )
    console.print(table)


def find_bars(pairs: list[Pair], target: str, draft: str, seed: int) -> list[Bar]:
    """Hold the ratios against what the engine on ONNX Runtime was to reach."""
    bounds = {("tiny", "int8", 1, 1): 0.65, (target, "float32", 1, 5): 0.6}
    bounds |= {(name, dtype, 8, 5): 0.85 for name, dtype in product(("tiny", target), DTYPES)}
    bars = []
    for pair in pairs:
        if bound := bounds.get((pair.name, pair.dtype, pair.rows, pair.width)):
            ratio = ratio_of_medians(pair.now_ms, pair.before_ms, seed=seed)
            bars.append(Bar(f"{pair}: time over the earlier tree's", ratio.high, bound, str(ratio)))
        if (pair.name, pair.dtype, pair.rows, pair.width) == (draft, "float32", 1, 1):
            step = spread(pair.now_ms)
            bars.append(Bar(f"{pair}: ms", step.median, 0.2, f"{step:.2f}"))
    return bars
