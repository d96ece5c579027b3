"""``python -m experiments.gpu STAGE``: the engine on a machine with a GPU, in three stages.

Each stage begins with what matters most, writes its figures after each item, and begins no item after seven
minutes. Other programs come last: nothing limits what one of them takes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from enum import StrEnum
from itertools import zip_longest
from typing import Annotated, Any

import torch
import typer
from transformers.utils import logging

from experiments.common.bench.options import Check, JsonFile, Quick, Seed, parse_levels
from experiments.common.bench.report import open_console, print_bars, write_json
from experiments.gpu import (
    MISSING,
    agreement,
    beside,
    encoding,
    kernels,
    logits,
    passes,
    peers,
    profiled,
    tuning,
)
from experiments.gpu.floor import DTYPES, measure_machine
from experiments.gpu.identity import check_identity
from experiments.gpu.service import Throughput, measure_service
from experiments.gpu.summary import JUDGED, Figures, find_bars, print_figures
from experiments.gpu.texts import Texts
from experiments.gpu.weights import SHAPES, Place, Weights
from experiments.steps.floor import Machine
from specwhisper.engine.process import check_device
from specwhisper.errors import InvalidRequest, SpecWhisperError
from specwhisper.model.pytorch.backend import add_in_float32
from specwhisper.types import CROSS_CACHES, Mode

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

    Every forward pass is compared with its floor: the bytes and operations it needs at the speeds measured
    here. The service is a replay with true costs, but random text and drafts, so its gain holds for the given
    acceptance. Exits with 1 if anything differs that must be equal.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    console, figures = open_console(), Figures()
    names = shape or ([JUDGED] if quick else [JUDGED, "turbo"])
    if MISSING:
        console.print(f"Not installed, and not needed here: {', '.join(MISSING)}.", highlight=False)
    try:
        if unknown := set(names) - set(SHAPES):
            raise InvalidRequest(f"Unknown shape '{min(unknown)}': choose from {', '.join(SHAPES)}.")
        if dtype not in DTYPES:
            raise InvalidRequest(f"Unknown dtype '{dtype}': choose from {', '.join(DTYPES)}.")
        levels = [2] if quick else parse_levels(sessions)
        check_device(device, "--device")
        if torch.device(device).type == "cuda":
            torch.cuda.set_device(torch.empty(0, device=device).device)  # with its number
            add_in_float32()
        place = Place(torch.device(device), is_narrow=torch.device(device).type == "cpu", seed=seed)
        machine = measure_machine(place)
        console.print(_described(place, machine), highlight=False)
    except SpecWhisperError as error:
        sys.exit(f"experiments.gpu: {error}")
    if processes is None:
        processes = 0 if place.is_narrow else min(8, (os.cpu_count() or 1) // 2)
    facts: dict[str, Any] = {
        "device": _described(place, machine),
        "speed": asdict(machine),
        "not_installed": MISSING,
    }
    models = {"weights": "random", "dtype": dtype, "device": device}

    def serve(weights: Weights, num_tokens: int, modes: list[Mode]) -> None:
        texts = Texts(4, 20, acceptance, seed) if quick else Texts(64, num_tokens, acceptance, seed)
        settings: dict[str, Any] = {"dtype": dtype, "num_processes": processes, "modes": modes}
        period_s = 2.0 if place.is_narrow else period

        def record(point: Throughput) -> None:
            figures.carried.append(point)
            save()

        asyncio.run(measure_service(weights, texts, levels, record, period_s=period_s, **settings))

    left_out: list[str] = []

    def save() -> None:
        """Write what there is: the machine may be taken away."""
        if json is not None:
            bars = list(map(str, find_bars(figures)))
            written = facts | {"bars": bars, "left_out": left_out, **asdict(figures)}
            write_json(json, models=models, figures=written)

    for one in stage or list(Stage):
        ends_s, left_out_here = time.monotonic() + 60 * minutes, []
        of_shapes = []
        for name in names:
            weights = Weights(name, place)
            items: dict[Stage, Iterator[Item]] = {
                Stage.CORRECTNESS: correctness(weights, figures, quick=quick),
                Stage.PROFILE: profile(weights, machine, dtype, figures, quick=quick),
                Stage.SERVICE: service(weights, dtype, figures, serve, save),
            }
            of_shapes.append([(f"{name}: {title}", measure) for title, measure in items[one]])
        in_turns = zip_longest(*of_shapes)  # what matters most of every shape, then the next
        for title, measure in (item for turn in in_turns for item in turn if item is not None):
            if time.monotonic() > ends_s:
                left_out_here.append(title)
                continue
            console.print(title, highlight=False)
            try:
                measure()
            except Exception:  # one failed item must not discard the others
                figures.failures[title] = traceback.format_exc()
                console.print_exception()
            place.tidy()
            save()
        del weights, items, of_shapes
        place.tidy()
        if left_out_here:
            console.print(f"Left out after {minutes:g} minutes: {', '.join(left_out_here)}.", highlight=False)
            left_out += left_out_here
            save()
    print_figures(figures, console)
    bars = find_bars(figures)
    broken = [f"{part} failed, see above" for part in figures.failures]
    broken += [f"{each.name}: {each.found}" for each in figures.checks if not each.holds]
    broken += [
        f"{of.mode}, {of.num_sessions} sessions: {of.num_different} texts differ {' '.join(of.failures)}"
        for of in figures.carried
        if of.num_different or of.failures
    ]
    all_hold = print_bars(bars, console) if check else True
    for line in broken:
        console.print(f"BROKEN: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not broken else 1)


def correctness(weights: Weights, figures: Figures, *, quick: bool) -> Iterator[Item]:
    """Yield what must be equal, or nearly."""
    num_tokens = logits.QUICK_TOKENS if quick else logits.NUM_TOKENS
    for kind in DTYPES:
        yield (
            f"kernels, {kind}",
            lambda kind=kind: figures.checks.extend(kernels.check_kernels(weights, kind)),
        )
    for kind in DTYPES:
        yield (
            f"logits, {kind}",
            lambda kind=kind: figures.checks.append(
                logits.check_logits(weights, kind, num_tokens=num_tokens)
            ),
        )
    yield "identity", lambda: figures.checks.extend(check_identity(weights))
    yield (
        "capture beside the encoder",
        lambda: figures.checks.append(beside.check_capture(weights, "float16")),
    )
    yield (
        "agreement",
        lambda: figures.agreements.extend(
            agreement.measure_agreement(
                weights,
                agreement.ARMS if weights.name == JUDGED else agreement.ARMS[:4],
                num_windows=agreement.QUICK_WINDOWS if quick else agreement.NUM_WINDOWS,
                num_tokens=agreement.QUICK_TOKENS if quick else agreement.NUM_TOKENS,
            )
        ),
    )


def profile(
    weights: Weights, machine: Machine, dtype: str, figures: Figures, *, quick: bool
) -> Iterator[Item]:
    """Yield where the time goes."""
    few = passes.QUICK if quick else passes.FEW

    def add(sizes: passes.Sizes, **settings: Any) -> None:
        settings = {"dtype": dtype, **settings}
        figures.points += passes.measure_passes(weights, machine, sizes, **settings)

    yield "passes", lambda: add(few)
    sizes = profiled.QUICK if quick else profiled.SIZES
    yield (
        "kernels by name",
        lambda: figures.profiles.extend(profiled.measure_profiles(weights, sizes, dtype=dtype)),
    )
    batches = encoding.QUICK if quick else encoding.BATCHES
    yield (
        "encoding",
        lambda: figures.encodings.extend(encoding.measure_encoding(weights, batches, dtype=dtype)),
    )
    yield (
        "passes beside the encoder",
        lambda: figures.beside.extend(beside.measure_beside(weights, dtype=dtype)),
    )
    tuned = tuning.QUICK if quick else tuning.SIZES
    if weights.name == JUDGED:
        for cache in CROSS_CACHES:
            yield f"passes, {cache} cache", lambda cache=cache: add(few, cross_cache=cache)
        yield "tuning", lambda: tuning.measure_tuning(weights, tuned, figures.tuned.append, dtype=dtype)
        for kind in ("bfloat16", "float32"):
            yield f"passes, {kind}", lambda kind=kind: add(few, dtype=kind)
        fallback = passes.QUICK if quick else passes.FALLBACK
        yield "passes, without kernels", lambda: add(fallback, is_fallback=True)
    yield "passes of other sizes", lambda: add(passes.QUICK if quick else passes.MORE)


def service(
    weights: Weights,
    dtype: str,
    figures: Figures,
    serve: Callable[[Weights, int, list[Mode]], None],
    save: Callable[[], None],
) -> Iterator[Item]:
    """Yield what clients get, and what they get from other programs."""

    def compare() -> None:
        for peer in peers.measure_peers(weights, dtype=dtype):
            figures.peers.append(peer)
            save()

    yield "requests", lambda: serve(weights, TOKENS_OF_A_REQUEST, [Mode.TARGET_ONLY, Mode.FULL])
    yield "sync", lambda: serve(weights, TOKENS_OF_A_REQUEST, [Mode.SYNC])
    yield "other programs", compare


def _described(place: Place, machine: Machine) -> str:
    """Describe the device and its measured speeds."""
    name = torch.cuda.get_device_name(place.device) if place.is_gpu else "a CPU, narrow shapes"
    speeds = ", ".join(f"{ops / 1e12:.3g} Top/s in {dtype}" for dtype, ops in machine.ops_per_s.items())
    return f"{name}: copies {machine.bytes_per_s / 1e9:.0f} GB/s, multiplies {speeds}"


if __name__ == "__main__":
    typer.run(gpu)
