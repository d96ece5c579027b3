"""``python -m experiments.fleet``: crowds, mixed weights, and servers that are lost or hang."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.fleet import herd, hung, mixed, opening, spread, update

Measured = tuple[list[Bar], Any, tuple[str, ...]]  # bars, figures, and what was wrong with sessions


class Part(StrEnum):
    """A part of the experiment."""

    MIXED = "mixed-weights"
    UPDATE = "rolling-update"
    HERD = "herd"
    OPENING = "lost-while-opening"
    SPREAD = "several-drafts"
    HUNG = "hung-draft"


def fleet(
    only: Annotated[
        list[Part] | None, typer.Option(help="This part; repeat for more. [default: all]")
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(file_okay=False, help="Keep the servers' logs in this folder.")
    ] = None,
    seed: Seed = 0,
    quick: Quick = False,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Run crowds of clients against fleets of servers and compare each text with the target's own.

    Servers are real processes whose models are scripted. Exits with 1 if a session failed without need, or
    its text is not that of one target's weights.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # of the servers to start
    console = open_console()
    bars: list[Bar] = []
    figures: dict[str, Any] = {}
    wrong: list[str] = []
    with TemporaryDirectory() as temporary:
        folder = logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measures = all_measures(folder, seed, quick=quick)
        for part in only or Part:
            try:
                with console.status(part.value):
                    found, figures[part.value], broken = asyncio.run(measures[part]())
            except Exception as error:  # the other parts are still worth their figures
                console.print_exception()
                wrong.append(f"{part}: {type(error).__name__}: {error}")
                continue
            print_bars(found, console)
            bars += found
            wrong += [f"{part}: {line}" for line in broken]
    if json is not None:
        figures |= {"bars": [str(bar) for bar in bars], "wrong": wrong}
        write_json(json, models={"target": "scripted", "draft": "scripted, 20 % wrong"}, figures=figures)
    for line in wrong:
        console.print(f"WRONG: {line}", style="red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(1 if wrong or (check and not all(bar.holds for bar in bars)) else 0)


def all_measures(folder: Path, seed: int, *, quick: bool) -> dict[Part, Callable[[], Awaitable[Measured]]]:
    """Return what measures each part, and how often."""
    return {
        Part.MIXED: partial(_mixed, 1 if quick else 5, folder),
        Part.UPDATE: partial(_update, 100, seed, folder),
        Part.HERD: partial(_herd, 3 if quick else 20, folder),
        Part.OPENING: partial(_opening, 1 if quick else 5, folder),
        Part.SPREAD: partial(_spread, 1 if quick else 5, folder),
        Part.HUNG: partial(_hung, 1 if quick else 5, folder),
    }


async def _mixed(rounds: int, folder: Path) -> Measured:
    found = await mixed.measure_mixed(rounds, folder)
    return mixed.bars(found), asdict(found), found.wrong


async def _update(num_sessions: int, seed: int, folder: Path) -> Measured:
    found = await update.measure_update(num_sessions, seed, folder)
    return update.bars(found), asdict(found), found.wrong


async def _herd(rounds: int, folder: Path) -> Measured:
    found = await herd.measure_herd(rounds, folder)
    return herd.bars(found), asdict(found), found.refused


async def _opening(rounds: int, folder: Path) -> Measured:
    found = await opening.measure_opening(rounds, folder)
    return opening.bars(found), asdict(found), found.wrong


async def _spread(rounds: int, folder: Path) -> Measured:
    found = await spread.measure_spread(rounds, folder)
    return spread.bars(found), asdict(found), found.wrong


async def _hung(rounds: int, folder: Path) -> Measured:
    found = await hung.measure_hung(rounds, folder)
    figures = {each.where: asdict(each) for each in found}
    return (
        [bar for each in found for bar in hung.bars(each)],
        figures,
        sum((each.wrong for each in found), ()),
    )


if __name__ == "__main__":
    typer.run(fleet)
