"""``python -m experiments.promises``: promises of servers in time and memory, on real processes."""

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
from traceback import format_exception
from typing import Annotated, Any

import typer

from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.promises import (
    beside,
    bombs,
    cancel,
    far_targets,
    faults,
    flood,
    handshakes,
    loading,
    messages,
    resets,
    slow_link,
    slow_reader,
    slow_targets,
    stops,
    texts,
)
from experiments.promises.messages import QUICK_SIZES, SIZES
from specwhisper.rpc.process import freeze_loaded
from specwhisper.rpc.serving_options import ServingOptions
from specwhisper_draft_server.config import DraftConfig

PROCESSES = {"OMP_NUM_THREADS": "1"}
SLOW: tuple[float, ...] = (20.0, 32.0, 64.0, 100.0)  # kB/s
IDLE_S, MAX_AUDIO_S = ServingOptions().idle_timeout_s, DraftConfig().max_audio_s  # the servers' defaults


class Promise(StrEnum):
    """The measured promises."""

    CANCEL = "cancel"
    FLOOD = "flood"
    RESETS = "resets"
    SLOW_READER = "slow-reader"
    BOMBS = "bombs"
    STOPS = "stops"
    FAULTS = "faults"
    MESSAGES = "messages"
    LOADING = "loading"
    HANDSHAKES = "handshakes"
    FAR = "far-targets"
    BESIDE = "beside"
    SLOW_TARGETS = "slow-targets"
    TEXTS = "texts"
    SLOW_LINK = "slow-link"


# --quick runs the first beside all others, since they only wait, and those with wide bars in parallel.
WAITING = (Promise.FAR, Promise.SLOW_LINK)
IN_PARALLEL = (
    Promise.RESETS,
    Promise.BOMBS,
    Promise.STOPS,
    Promise.FAULTS,
    Promise.LOADING,
    Promise.HANDSHAKES,
    Promise.SLOW_TARGETS,
    Promise.TEXTS,
)

Measured = tuple[list[Bar], Any, list[str]]  # bars, figures, violations
Show = Callable[[list[Promise], list[Measured | BaseException]], None]


def promises(
    only: Annotated[
        list[Promise] | None, typer.Option(help="Promise; repeat for more. [default: all]")
    ] = None,
    seed: Seed = 0,
    quick: Quick = False,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Measure promises to clients that leave, flood, do not read or send bombs, and under faults.

    Servers are real processes with scripted models. Exits with 1 if a text is wrong or a promise could not be
    measured; the figures of the others are written all the same.
    """
    os.environ |= PROCESSES
    freeze_loaded()  # a garbage collection of loaded modules would count as a server's delay
    console = open_console()
    bars: list[Bar] = []
    wrong: list[str] = []
    figures: dict[str, Any] = {}

    def show(group: list[Promise], measured: list[Measured | BaseException]) -> None:
        for promise, outcome in zip(group, measured, strict=True):
            if isinstance(outcome, BaseException):  # the other promises are still measured
                console.print("".join(format_exception(outcome)), highlight=False, markup=False)
                wrong.append(f"{promise}: {type(outcome).__name__}: {outcome}")
                continue
            found, figures[promise.value], broken = outcome
            print_bars(found, console)
            bars.extend(found)
            wrong.extend(broken)

    with TemporaryDirectory() as folder, console.status("Measuring"):
        asyncio.run(_measure(only or list(Promise), Path(folder), seed, show, quick=quick))
    if json is not None:
        figures |= {"bars": [str(bar) for bar in bars], "wrong": wrong}
        write_json(json, models={"target": "scripted", "draft": "scripted, 20 % wrong"}, figures=figures)
    for line in wrong:
        console.print(f"BROKEN: {line}", style="red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(1 if wrong or (check and not all(bar.holds for bar in bars)) else 0)


def in_groups(wanted: list[Promise], *, quick: bool) -> list[list[Promise]]:
    """Return the promises beside all others, those in parallel, then single ones."""
    if not quick:
        return [[], *([promise] for promise in wanted)]
    waiting, parallel = (
        [promise for promise in wanted if promise in some] for some in (WAITING, IN_PARALLEL)
    )
    return [waiting, parallel, *([promise] for promise in wanted if promise not in WAITING + IN_PARALLEL)]


async def _measure(wanted: list[Promise], folder: Path, seed: int, show: Show, *, quick: bool) -> None:
    """Measure each promise in its own folder; show its error if it fails."""

    def measured(group: list[Promise]) -> asyncio.Future[list[Measured | BaseException]]:
        measures = []
        for promise in group:
            (own := folder / promise).mkdir()
            measures.append(all_measures(own, seed, quick=quick)[promise]())
        return asyncio.gather(*measures, return_exceptions=True)

    waiting, *groups = in_groups(wanted, quick=quick)
    waited_for = measured(waiting)
    for group in groups:
        show(group, await measured(group))
    show(waiting, await waited_for)


def all_measures(folder: Path, seed: int, *, quick: bool) -> dict[Promise, Callable[[], Awaitable[Measured]]]:
    """Return the measurement of each promise, with its number of rounds."""
    return {
        Promise.CANCEL: partial(_cancel, 1 if quick else 20),
        Promise.FLOOD: partial(_flood, 3 if quick else 15, folder),
        Promise.RESETS: partial(_resets, 300 if quick else 2_000, folder),
        Promise.SLOW_READER: partial(_slow_reader, *((1.0, 2) if quick else (IDLE_S, 5)), seed, folder),
        Promise.BOMBS: partial(_bombs, *((10.0, 24.0, 1) if quick else (MAX_AUDIO_S, 1.5, 2))),
        Promise.STOPS: partial(_stops, 1 if quick else 10, folder),
        Promise.FAULTS: partial(_faults, 1 if quick else 10, folder),
        Promise.MESSAGES: partial(_messages, *((QUICK_SIZES, 1, 3) if quick else (SIZES, 2, 9))),
        Promise.LOADING: partial(_loading, 1 if quick else 5, folder),
        Promise.HANDSHAKES: partial(_handshakes, 100 if quick else 400, folder),
        Promise.FAR: partial(_far, 1 if quick else 3, folder),
        Promise.BESIDE: partial(_beside, 3 if quick else 9),
        Promise.SLOW_TARGETS: partial(_slow_targets, folder),
        Promise.TEXTS: partial(_texts, folder),
        Promise.SLOW_LINK: partial(_slow_link, *((SLOW[:1], 6.4) if quick else (SLOW, 25.6)), folder),
    }


async def _cancel(rounds: int) -> Measured:
    freed = await cancel.measure_cancel(rounds)
    return cancel.bars(freed), [asdict(one) for one in freed], []


async def _flood(floods: int, folder: Path) -> Measured:
    flooded = await flood.measure_flood(floods, folder)
    return flood.bars(flooded), asdict(flooded), list(flooded.wrong)


async def _resets(num: int, folder: Path) -> Measured:
    survived = await resets.measure_resets(num, folder)
    return resets.bars(survived), asdict(survived), list(survived.wrong)


async def _slow_reader(idle_timeout_s: float, rounds: int, seed: int, folder: Path) -> Measured:
    beside = await slow_reader.measure_slow_reader(idle_timeout_s, rounds, seed, folder)
    return slow_reader.bars(beside, seed), asdict(beside), list(beside.wrong)


async def _bombs(max_audio_s: float, times_longer: float, rounds: int) -> Measured:
    sent = await bombs.measure_bombs(max_audio_s, times_longer, rounds)
    return bombs.bars(sent), [asdict(one) for one in sent], []


async def _stops(rounds: int, folder: Path) -> Measured:
    stopped = await stops.measure_stops(rounds, folder)
    wrong = [line for one in stopped for line in one.wrong]
    return stops.bars(stopped), [asdict(one) for one in stopped], wrong


async def _faults(rounds: int, folder: Path) -> Measured:
    faulted = await faults.measure_faults(rounds, folder)
    faulted += await faults.measure_draft_faults(rounds, folder)
    short = await faults.measure_no_memory(rounds, folder)
    receiving = await faults.measure_no_memory_to_receive(rounds, folder)
    found = {"device": faulted, "memory": short, "memory_to_receive": receiving}
    wrong = [line for some in found.values() for one in some for line in one.wrong]
    figures = {name: [asdict(one) for one in some] for name, some in found.items()}
    return faults.bars(faulted, short, receiving), figures, wrong


async def _messages(sizes: tuple[int, ...], lead: int, rounds: int) -> Measured:
    sent = await messages.measure_messages(sizes, lead, rounds)
    return messages.bars(sent), [asdict(one) for one in sent], []


async def _loading(rounds: int, folder: Path) -> Measured:
    ended = await loading.measure_loading(rounds, folder)
    return loading.bars(ended), [asdict(one) for one in ended], []


async def _handshakes(num_silent: int, folder: Path) -> Measured:
    silent = await handshakes.measure_handshakes(num_silent, folder)
    return handshakes.bars(silent), asdict(silent), []


async def _far(rounds: int, folder: Path) -> Measured:
    far = await far_targets.measure_far(rounds, folder)
    return far_targets.bars(far), asdict(far), list(far.wrong)


async def _beside(rounds: int) -> Measured:
    attacked = await beside.measure_beside(rounds)
    return beside.bars(attacked), [asdict(one) for one in attacked], []


async def _slow_targets(folder: Path) -> Measured:
    continued = await slow_targets.measure_slow_targets(folder)
    wrong = [line for one in continued for line in one.wrong]
    return slow_targets.bars(continued), [asdict(one) for one in continued], wrong


async def _texts(folder: Path) -> Measured:
    hostile = await asyncio.to_thread(texts.measure_texts, folder)
    return texts.bars(hostile), asdict(hostile), list(hostile.wrong)


async def _slow_link(rates: tuple[float, ...], length_s: float, folder: Path) -> Measured:
    passed = await slow_link.measure_slow_links(rates, length_s, folder)
    wrong = [line for one in passed for line in one.wrong]
    return slow_link.bars(passed), [asdict(one) for one in passed], wrong


if __name__ == "__main__":
    typer.run(promises)
