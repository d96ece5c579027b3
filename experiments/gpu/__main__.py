"""``python -m experiments.gpu STAGE``: the engine on a machine with a GPU, in three stages.

Each stage begins with what matters most, writes its figures after each item, and begins no item after seven
minutes. transformers comes last: nothing limits what it takes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from enum import StrEnum
from itertools import zip_longest
from typing import Annotated, Any

import torch
import typer
from transformers.utils import logging

from experiments.common.bench.options import Check, JsonFile, Quick, Seed, parse_levels
from experiments.common.bench.report import open_console, print_bars, write_json
from experiments.gpu import agreement, beside, encoding, identity, passes, peers
from experiments.gpu.figures import JUDGED, Figures, find_bars, print_figures
from experiments.gpu.service import Throughput, measure_service
from experiments.gpu.texts import Texts
from experiments.gpu.weights import SHAPES, Place, Weights
from specwhisper.engine.process import check_device
from specwhisper.errors import InvalidRequest, SpecWhisperError
from specwhisper.model.pytorch.backend import force_float32_accumulation
from specwhisper.types import Mode

DTYPES = ("float16", "bfloat16", "float32")
TOKENS_OF_A_REQUEST = 28  # 10 s of speech
Item = tuple[str, Callable[[], None]]


class Stage(StrEnum):
    """Stages of the measurement, in the order of their importance."""

    CORRECTNESS = "correctness"
    PROFILE = "profile"
    SERVICE = "service"


def gpu(
    stage: Annotated[list[Stage] | None, typer.Argument(help="Stages. [default: all]")] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help=f"Shape of {', '.join(SHAPES)}; repeat for more. [default: large-v3, turbo]"),
    ] = None,
    device: Annotated[str, typer.Option(help="Torch device; on a CPU, shapes are narrow.")] = "cuda",
    dtype: Annotated[str, typer.Option(help="Data type of passes, encoding and service.")] = "float16",
    acceptance: Annotated[float, typer.Option(min=0, max=1, help="Acceptance of the replayed draft.")] = 0.85,
    sessions: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of clients of the service.")
    ] = "1,16,32,64,128",
    period: Annotated[float, typer.Option(min=0.5, help="Duration of a throughput measurement, in s.")] = 6.0,
    processes: Annotated[int | None, typer.Option(help="Client processes. [default: by cores]")] = None,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Items of a stage that have not begun by then are left out.")
    ] = 7.0,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Measure the engine with random weights of published shapes on a machine with a GPU.

    The service is a replay with true costs, but random text and drafts, so its gain holds for the given
    acceptance. Exits with 1 if anything differs that must be equal.
    """
    logging.set_verbosity_error()
    console, figures, left_out = open_console(), Figures(), list[str]()
    names = shape or ([JUDGED] if quick else [JUDGED, "turbo"])
    try:
        if unknown := set(names) - set(SHAPES):
            raise InvalidRequest(f"Unknown shape '{min(unknown)}': choose from {', '.join(SHAPES)}.")
        if dtype not in DTYPES:
            raise InvalidRequest(f"Unknown dtype '{dtype}': choose from {', '.join(DTYPES)}.")
        levels = [2] if quick else parse_levels(sessions)
        check_device(device, "--device")
    except SpecWhisperError as error:
        sys.exit(f"experiments.gpu: {error}")
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(torch.empty(0, device=device).device)  # with its number
        force_float32_accumulation()
    place = Place(torch.device(device), is_narrow=torch.device(device).type == "cpu", seed=seed)
    described = torch.cuda.get_device_name(place.device) if place.is_gpu else "a CPU, narrow shapes"
    console.print(described, highlight=False)
    if processes is None:
        processes = 0 if place.is_narrow else min(8, (os.cpu_count() or 1) // 2)

    def save() -> None:
        """Write what there is: the machine may be taken away."""
        if json is not None:
            models = {"weights": "random", "dtype": dtype, "device": device}
            facts = {"device": described, "bars": list(map(str, find_bars(figures))), "left_out": left_out}
            write_json(json, models=models, figures=facts | asdict(figures))

    def serve(weights: Weights, modes: list[Mode]) -> None:
        texts = Texts(4, 20, acceptance, seed) if quick else Texts(64, TOKENS_OF_A_REQUEST, acceptance, seed)

        def record(carried: Throughput) -> None:
            figures.carried.append(carried)
            save()

        settings: dict[str, Any] = {"dtype": dtype, "num_processes": processes, "modes": modes}
        period_s = 2.0 if place.is_narrow else period
        asyncio.run(measure_service(weights, texts, levels, record, period_s=period_s, **settings))

    def items_of(one: Stage, weights: Weights) -> Iterator[Item]:
        match one:
            case Stage.CORRECTNESS:
                return correctness(weights, figures, quick=quick)
            case Stage.PROFILE:
                return profile(weights, dtype, figures, quick=quick)
            case Stage.SERVICE:
                return service(weights, dtype, figures, serve)

    for one in stage or list(Stage):
        ends_s = time.monotonic() + 60 * minutes
        of_shapes = [[(name, *item) for item in items_of(one, Weights(name, place))] for name in names]
        in_turns = zip_longest(*of_shapes)  # what matters most of every shape, then the next
        for name, title, measure in (item for turn in in_turns for item in turn if item is not None):
            title = f"{name}: {title}"
            if time.monotonic() > ends_s:
                left_out.append(title)
                continue
            console.print(title, highlight=False)
            try:
                measure()
            except Exception:  # one failed item must not discard the others
                figures.failures[title] = traceback.format_exc()
                console.print_exception()
            place.tidy()
            save()
        del of_shapes, in_turns
        place.tidy()
    if left_out:
        console.print(f"Left out after {minutes:g} minutes: {', '.join(left_out)}.", highlight=False)
        save()
    print_figures(figures, console)
    all_hold = print_bars(find_bars(figures), console) if check else True
    for line in figures.broken:
        console.print(f"BROKEN: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not figures.broken else 1)


def item(
    title: str, rows: list[Any], measure: Callable[..., Iterable[Any]], *args: Any, **kwargs: Any
) -> Item:
    """Return an item that adds each row as soon as it is measured."""

    def run() -> None:
        for row in measure(*args, **kwargs):
            rows.append(row)

    return title, run


def correctness(weights: Weights, figures: Figures, *, quick: bool) -> Iterator[Item]:
    """Yield what must be equal, or nearly."""
    checks = figures.checks
    for kind in DTYPES:
        yield item(f"kernels, {kind}", checks, identity.check_kernels, weights, kind)
    for kind in DTYPES:
        yield item(f"logits, {kind}", checks, identity.check_logits, weights, kind, quick=quick)
    yield item("graphs", checks, identity.check_graphs, weights)
    yield item("texts with a draft", checks, identity.check_texts, weights)
    yield item("capture beside the encoder", checks, beside.check_capture, weights, "float16")
    yield item("agreement", figures.agreements, agreement.measure_agreement, weights, quick=quick)


def profile(weights: Weights, dtype: str, figures: Figures, *, quick: bool) -> Iterator[Item]:
    """Yield where the time goes."""
    few, more = (passes.QUICK, passes.QUICK) if quick else (passes.FEW, passes.MORE)
    batches = encoding.QUICK if quick else encoding.BATCHES

    def timed(title: str, sizes: passes.Sizes, **settings: Any) -> Item:
        settings = {"dtype": dtype, **settings}
        return item(title, figures.passes, passes.measure_passes, weights, sizes, **settings)

    yield timed("passes", few)
    yield item("encoding", figures.encodings, encoding.measure_encoding, weights, batches, dtype=dtype)
    yield item("passes beside the encoder", figures.beside, beside.measure_beside, weights, dtype=dtype)
    if weights.name == JUDGED:
        for kind in ("bfloat16", "float32"):
            yield timed(f"passes, {kind}", few, dtype=kind)
    yield timed("passes of other sizes", more)


def service(
    weights: Weights, dtype: str, figures: Figures, serve: Callable[[Weights, list[Mode]], None]
) -> Iterator[Item]:
    """Yield what clients get, and what transformers does."""
    yield "requests", lambda: serve(weights, [Mode.TARGET_ONLY, Mode.FULL])
    yield "sync", lambda: serve(weights, [Mode.SYNC])
    yield item("transformers", figures.peers, peers.measure_peers, weights, dtype=dtype)


if __name__ == "__main__":
    typer.run(gpu)
