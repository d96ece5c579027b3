"""``python -m experiments.gpu STAGE``: the engine on a machine with a GPU, in three stages.

Each stage begins with what matters most, writes its figures after each item, and begins no item after seven
minutes.
"""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from itertools import zip_longest
from typing import Annotated, Any

import torch
import typer
from rich.table import Table

from experiments.common.bench.program import Program, program
from experiments.common.bench.report import Bar
from experiments.gpu import identity, passes
from experiments.gpu.service import Texts, Throughput, measure_service
from experiments.gpu.weights import Place, Weights
from specwhisper.engine.process import check_device
from specwhisper.model.pytorch.backend import force_float32_accumulation
from specwhisper.types import Mode

DTYPES = ("float16", "bfloat16", "float32")  # for the logits
DTYPE = DTYPES[0]  # of passes, encoding and service
TOKENS_OF_A_REQUEST = 28  # 10 s of speech
JUDGED = "large-v3"
PASS_MS = {(1, 8): 1.0, (32, 5): 3.5}
REQUESTS_PER_S, REQUEST_S = 80.0, 0.1  # 32 clients; 95th percentile of one client
TITLES = {
    "checks": "equalities",
    "passes": "forward passes of sessions x tokens",
    "encodings": "encoding a window",
    "carried": "sessions on one target, over gRPC, replay",
}
Item = tuple[str, Callable[[], None]]


class Stage(StrEnum):
    """Stages of the measurement, in the order of their importance."""

    CORRECTNESS = "correctness"
    PROFILE = "profile"
    SERVICE = "service"


@dataclass
class Figures:
    """Rows of each kind; ``failures`` has the traceback of each failed part, by name."""

    checks: list[identity.Check] = field(default_factory=list)
    passes: list[passes.Timed] = field(default_factory=list)
    encodings: list[passes.Encoding] = field(default_factory=list)
    carried: list[Throughput] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def broken(self) -> list[str]:
        """Describe what failed or differs."""
        lines = [f"{part} failed: {trace.splitlines()[-1]}" for part, trace in self.failures.items()]
        lines += [f"{each.name}: {each.found}" for each in self.checks if not each.holds]
        return lines + [
            f"{of.mode}, {of.num_sessions} sessions: {of.num_different} texts differ {' '.join(of.failures)}"
            for of in self.carried
            if of.num_different or of.failures
        ]


@program
def gpu(
    given: Program,
    stage: Annotated[list[Stage] | None, typer.Argument(help="Stages. [default: all]")] = None,
    device: Annotated[str, typer.Option(help="Torch device; on a CPU, shapes are narrow.")] = "cuda",
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Items of a stage that have not begun by then are left out.")
    ] = 7.0,
) -> None:
    """Measure the engine with random weights of published shapes on a machine with a GPU.

    The service is a replay with true costs, but random text, and drafts that are right in 85 %. Exits with 1
    if anything differs that must be equal.
    """
    names = given.choose([JUDGED], [JUDGED, "turbo"])
    levels = given.choose((2,), (1, 16, 32, 64, 128))
    check_device(device, "--device")
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(torch.empty(0, device=device).device)  # with its number
        force_float32_accumulation()
    place = Place(torch.device(device), is_narrow=torch.device(device).type == "cpu", seed=given.seed)
    described = torch.cuda.get_device_name(place.device) if place.is_gpu else "a CPU, narrow shapes"
    given.print(described)
    figures, left_out = Figures(), list[str]()

    def results() -> tuple[dict[str, Any], dict[str, Any], list[Bar], list[str]]:
        models = {"weights": "random", "dtype": DTYPE, "device": device}
        content = {"device": described, "left_out": left_out, **asdict(figures)}
        return models, content, find_bars(figures), figures.broken

    def serve(weights: Weights, *modes: Mode) -> None:
        texts = given.choose(Texts(4, 20, given.seed), Texts(64, TOKENS_OF_A_REQUEST, given.seed))
        num_processes = 0 if place.is_narrow else min(8, (os.cpu_count() or 1) // 2)

        def record(carried: Throughput) -> None:
            figures.carried.append(carried)
            given.save(*results())

        settings: dict[str, Any] = {"dtype": DTYPE, "num_processes": num_processes, "modes": modes}
        asyncio.run(measure_service(weights, texts, levels, record, **settings))

    def items_of(one: Stage, weights: Weights) -> Iterator[Item]:
        match one:
            case Stage.CORRECTNESS:
                return correctness(weights, figures, quick=given.quick)
            case Stage.PROFILE:
                return profile(weights, figures, quick=given.quick)
            case Stage.SERVICE:
                return service(weights, serve)

    for one in stage or list(Stage):
        ends_s = time.monotonic() + 60 * minutes
        of_shapes = [[(name, *item) for item in items_of(one, Weights(name, place))] for name in names]
        in_turns = zip_longest(*of_shapes)  # what matters most of every shape, then the next
        for name, title, measure in (item for turn in in_turns for item in turn if item is not None):
            title = f"{name}: {title}"
            if time.monotonic() > ends_s:
                left_out.append(title)
                continue
            given.print(title)
            try:
                measure()
            except Exception:  # one failed item must not discard the others
                figures.failures[title] = traceback.format_exc()
                given.console.print_exception()
            place.tidy()
            given.save(*results())  # the machine may be taken away
        del of_shapes, in_turns
        place.tidy()
    if left_out:
        given.print(f"Left out after {minutes:g} minutes: {', '.join(left_out)}.")
    for kind, title in TITLES.items():
        if rows := getattr(figures, kind):
            given.console.print(table_of(title, rows))
    given.end(*results())


def item(
    title: str, rows: list[Any], measure: Callable[..., Iterable[Any]], *args: Any, **kwargs: Any
) -> Item:
    """Return an item that adds each row as soon as it is measured."""

    def run() -> None:
        for row in measure(*args, **kwargs):
            rows.append(row)

    return title, run


def correctness(weights: Weights, figures: Figures, *, quick: bool) -> Iterator[Item]:
    """Yield what must be equal, or nearly; the kernels have a test of their own in the target server."""
    for kind in DTYPES:
        yield item(f"logits, {kind}", figures.checks, identity.check_logits, weights, kind, quick=quick)
    yield item("texts with a draft", figures.checks, identity.check_texts, weights)


def profile(weights: Weights, figures: Figures, *, quick: bool) -> Iterator[Item]:
    """Yield where the time goes."""
    few, more = (passes.QUICK, passes.QUICK) if quick else (passes.FEW, passes.MORE)
    batches = passes.QUICK_BATCHES if quick else passes.BATCHES

    def timed(title: str, sizes: passes.Sizes, **settings: Any) -> Item:
        settings = {"dtype": DTYPE, **settings}
        return item(title, figures.passes, passes.measure_passes, weights, sizes, **settings)

    yield timed("passes", few)
    yield item("encoding", figures.encodings, passes.measure_encoding, weights, batches, dtype=DTYPE)
    if weights.name == JUDGED:
        for kind in ("bfloat16", "float32"):
            yield timed(f"passes, {kind}", few, dtype=kind)
    yield timed("passes of other sizes", more)


def service(weights: Weights, serve: Callable[..., None]) -> Iterator[Item]:
    """Yield what clients get."""
    yield "requests", lambda: serve(weights, Mode.TARGET_ONLY, Mode.FULL)
    yield "sync", lambda: serve(weights, Mode.SYNC)


def find_bars(figures: Figures) -> list[Bar]:
    """Hold what there is of the judged shape against the engine's goals."""
    bars = []
    for one in figures.passes:
        bound = PASS_MS.get((one.rows, one.width))
        is_half = one.dtype in ("float16", "bfloat16")
        if bound is not None and one.shape == JUDGED and is_half:
            name = f"{JUDGED}: forward pass of {one.rows} x {one.width} tokens, {one.dtype}, ms"
            bars.append(Bar(name, one.ms, bound, f"{one.ms:.2f}"))
    carried = [one for one in figures.carried if one.shape == JUDGED and one.requests_per_s]
    if of_32 := [one for one in carried if one.num_sessions == 32]:
        best = max(of_32, key=lambda one: one.requests_per_s)
        name, shown = (
            f"{JUDGED}: requests of 32 clients a second",
            f"{best.requests_per_s:.1f} in {best.mode}",
        )
        bars.append(Bar(name, best.requests_per_s, REQUESTS_PER_S, shown, at_least=True))
    if alone := [one for one in carried if one.num_sessions == 1]:
        quickest = min(alone, key=lambda one: one.p95_s)
        name = f"{JUDGED}: 95th percentile of one client's requests, s"
        bars.append(Bar(name, quickest.p95_s, REQUEST_S, f"{quickest.p95_s:.3f} in {quickest.mode}"))
    if exact := [one for one in figures.checks if "float32" in one.name]:
        num_broken = sum(not one.holds for one in exact)
        shown = f"{num_broken} of {len(exact)}"
        bars.append(Bar("equalities in float32 that do not hold", num_broken, 1, shown))
    return bars


def table_of(title: str, rows: Sequence[Any]) -> Table:
    """Return a table with the fields of the rows as columns."""
    names = [each.name for each in fields(rows[0]) if each.name != "failures"]
    table = Table(*names, title=title)
    for row in rows:
        values = (getattr(row, name) for name in names)
        table.add_row(*(f"{each:.4g}" if isinstance(each, float) else str(each) for each in values))
    return table


if __name__ == "__main__":
    typer.run(gpu)
