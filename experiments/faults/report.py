"""Run the parts of a program, print their bars, and end with an exit status."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from traceback import format_exception
from typing import Any, NoReturn, TypeVar

from rich.console import Console

from experiments.common.bench.report import Bar, print_bars, write_json

SCRIPTED_MODELS = {"target": "scripted", "draft": "scripted, 20 % wrong"}
SHOWN_LINES = 20
Number = TypeVar("Number", int, float, tuple)


@dataclass(frozen=True, slots=True)
class Run:
    folder: Path
    seed: int
    quick: bool

    def choose(self, quick: Number, full: Number) -> Number:
        return quick if self.quick else full


@dataclass(slots=True)
class Result:
    """Outcome of a part."""

    bars: list[Bar]
    figures: Any = None  # JSON values
    wrong: list[str] = field(default_factory=list)  # texts and failures, which need no bar to fail the run


Measure = Callable[[Run], Awaitable[Result]]


def none(name: str, num: int, of: int | None = None, note: str = "") -> Bar:
    """Return the bar of something that must not happen."""
    shown = f"{num}" if of is None else f"{num} of {of}"
    return Bar(name, num, 1, f"{shown}, {note}" if note else shown)


def at_most(name: str, values: Iterable[float], bound: float, note: str = "") -> Bar:
    """Return the bar of the greatest value."""
    values = list(values)
    note = note or (f"at most of {len(values)}" if len(values) > 1 else "")
    return Bar(name, max(values), bound, f"{max(values):.3g} {note}".strip())


async def measure_parts(
    parts: Mapping[str, Measure],
    run: Run,
    console: Console,
    *,
    beside: Sequence[str] = (),
    together: Sequence[str] = (),
) -> dict[str, Result]:
    """Measure parts in folders of their own; one that fails does not end the others.

    Some run ``beside`` all others; some ``together``, after which the rest run one by one.
    """

    async def measure(name: str) -> Result:
        folder = run.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return await parts[name](Run(folder, run.seed, run.quick))
        except Exception as error:
            console.print("".join(format_exception(error)), highlight=False, markup=False)
            return Result([], wrong=[f"{type(error).__name__}: {error}"])

    async def measure_all(names: Sequence[str]) -> dict[str, Result]:
        results = dict(zip(names, await asyncio.gather(*map(measure, names)), strict=True))
        for result in results.values():
            print_bars(result.bars, console)
        return results

    rest = [name for name in parts if name not in (*beside, *together)]
    waiting = asyncio.create_task(measure_all([name for name in beside if name in parts]))
    found = await measure_all([name for name in together if name in parts])
    for name in rest:
        found |= await measure_all([name])
    return found | await waiting


def finish(
    results: Mapping[str, Result],
    console: Console,
    *,
    json: Path | None,
    check: bool,
    models: Mapping[str, str] = SCRIPTED_MODELS,
) -> NoReturn:
    """Write the figures, and exit with 1 if a session went wrong, or if a checked bar is short."""
    bars = [bar for result in results.values() for bar in result.bars]
    wrong = [f"{name}: {line}" for name, result in results.items() for line in result.wrong]
    if json is not None:
        figures = {name: result.figures for name, result in results.items()}
        write_json(
            json, models=models, figures={"bars": [str(bar) for bar in bars], "wrong": wrong} | figures
        )
    for line in wrong[:SHOWN_LINES]:
        console.print(f"BROKEN: {line}", style="red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(1 if wrong or (check and not all(bar.holds for bar in bars)) else 0)
