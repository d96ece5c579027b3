"""Run the parts of a program, and put their results together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from traceback import format_exception
from typing import Any, NoReturn

from experiments.common.bench.program import Program
from experiments.common.bench.report import Bar

SCRIPTED_MODELS = {"target": "scripted", "draft": "scripted, 20 % wrong"}


@dataclass(slots=True)
class Result:
    bars: list[Bar]
    figures: Any = None  # JSON values
    wrong: list[str] = field(default_factory=list)  # texts and failures, which need no bar to fail the run


Measure = Callable[[Program], Awaitable[Result]]


async def measure_parts(
    parts: Mapping[str, Measure], given: Program, *, together: Sequence[str] = ()
) -> dict[str, Result]:
    """Measure parts in folders of their own; one that fails does not end the others.

    Some run ``together``, after which the rest run one by one.
    """

    async def measure(name: str) -> Result:
        folder = given.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        given.print(name, style="dim")
        try:
            return await parts[name](replace(given, folder=folder))
        except Exception as error:
            given.print("".join(format_exception(error)))
            return Result([], wrong=[f"{type(error).__name__}: {error}"])

    async def measure_all(names: Sequence[str]) -> dict[str, Result]:
        return dict(zip(names, await asyncio.gather(*map(measure, names)), strict=True))

    found = await measure_all([name for name in together if name in parts])
    for name in parts:
        if name not in together:
            found |= await measure_all([name])
    return found


def end(
    given: Program, results: Mapping[str, Result], models: Mapping[str, str] = SCRIPTED_MODELS
) -> NoReturn:
    """Write the figures, and exit with 1 if a session went wrong, or if a checked bar is short."""
    bars = [bar for result in results.values() for bar in result.bars]
    wrong = [f"{name}: {line}" for name, result in results.items() for line in result.wrong]
    given.end(models, {name: result.figures for name, result in results.items()}, bars, wrong)
