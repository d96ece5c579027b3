"""``python -m experiments.gpu``: the engine on a machine with a GPU, forward passes against their floor."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import torch
import typer
from transformers.utils import logging

from experiments.common.bench.options import Check, JsonFile, Quick, Seed, parse_levels
from experiments.common.bench.report import open_console, print_bars, write_json
from experiments.gpu import MISSING, agreement, encoding, kernels, passes
from experiments.gpu.floor import DTYPES, measure_machine
from experiments.gpu.identity import check_identity
from experiments.gpu.service import measure_service
from experiments.gpu.summary import JUDGED, Figures, find_bars, print_figures
from experiments.gpu.texts import Texts
from experiments.gpu.weights import SHAPES, Place, Weights
from experiments.steps.floor import Machine
from specwhisper.engine.process import check_device
from specwhisper.errors import InvalidRequest, SpecWhisperError
from specwhisper.types import CROSS_CACHES

IDENTICAL = ("tiny", "distil-large-v3")  # shapes that a CPU runs quickly
TOKENS_OF_A_WINDOW = 100


class Part(StrEnum):
    """Parts of the measurement."""

    IDENTITY = "identity"
    PASSES = "passes"
    ENCODING = "encoding"
    KERNELS = "kernels"
    AGREEMENT = "agreement"
    SERVICE = "service"


def gpu(
    shape: Annotated[
        list[str] | None, typer.Option(help=f"Shape of {', '.join(SHAPES)}; repeat for more. [default: all]")
    ] = None,
    part: Annotated[list[Part] | None, typer.Option(help="Part; repeat for more. [default: all]")] = None,
    device: Annotated[str, typer.Option(help="Torch device; on a CPU, shapes are narrow.")] = "cuda",
    dtype: Annotated[str, typer.Option(help="Data type of passes, encoding and service.")] = "float16",
    acceptance: Annotated[float, typer.Option(min=0, max=1, help="Acceptance of the replayed draft.")] = 0.85,
    sessions: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of sessions of the service.")
    ] = "1,16,64",
    period: Annotated[float, typer.Option(min=0.5, help="Duration of a throughput measurement, in s.")] = 8.0,
    processes: Annotated[int | None, typer.Option(help="Client processes. [default: by cores]")] = None,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Measure the engine with random weights of published shapes on a machine with a GPU.

    Every forward pass is compared with its floor: the bytes and operations it needs at the speeds measured
    here. The service is a replay of the first shape with true costs, but random text and drafts, so its gain
    holds for the given acceptance. Exits with 1 if anything differs that must be equal.
    """
    logging.set_verbosity_error()
    torch.backends.cudnn.allow_tf32 = False  # float32 means float32
    console, figures = open_console(), Figures()
    parts, names = part or list(Part), shape or list(SHAPES)
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
            torch.cuda.set_device(device)
        place = Place(torch.device(device), is_narrow=torch.device(device).type == "cpu", seed=seed)
        machine = measure_machine(place)
        console.print(_described(place, machine), highlight=False)
    except SpecWhisperError as error:
        sys.exit(f"experiments.gpu: {error}")
    if processes is None:
        processes = 0 if place.is_narrow else min(8, (os.cpu_count() or 1) // 2)
    models = {"weights": "random", "dtype": dtype, "device": device}
    for name in names:
        weights = Weights(name, place)
        measurements = measurements_of(weights, machine, dtype, figures, quick=quick)
        if name == names[0]:
            measurements[Part.SERVICE] = lambda weights=weights: figures.carried.extend(
                asyncio.run(
                    measure_service(
                        weights,
                        Texts(4, 20, acceptance, seed)
                        if quick
                        else Texts(64, TOKENS_OF_A_WINDOW, acceptance, seed),
                        levels,
                        dtype=dtype,
                        period_s=0.5 if place.is_narrow else period,
                        num_processes=processes,
                    )
                )
            )
        for one, measure in measurements.items():
            if one not in parts:
                continue
            console.print(f"{name}: {one}", highlight=False)
            try:
                measure()
            except Exception:  # one failed part must not discard hours of figures
                figures.failures[f"{name}: {one}"] = traceback.format_exc()
                console.print_exception()
            place.tidy()
            if json is not None:
                facts: dict[str, Any] = {"device": _described(place, machine), "speed": asdict(machine)}
                bars = list(map(str, find_bars(figures)))
                facts |= {"not_installed": MISSING, "bars": bars, **asdict(figures)}
                write_json(json, models=models, figures=facts)
        del weights, measurements
        place.tidy()
    print_figures(figures, console)
    bars = find_bars(figures)
    broken = [f"{part} failed, see above" for part in figures.failures]
    broken += [f"{one.name}: {one.found}" for one in figures.checks if not one.holds]
    broken += [
        f"{one.mode}, {one.num_sessions} sessions: {one.num_different} texts differ {' '.join(one.failures)}"
        for one in figures.carried
        if one.num_different or one.failures
    ]
    all_hold = print_bars(bars, console) if check else True
    for line in broken:
        console.print(f"BROKEN: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not broken else 1)


def measurements_of(
    weights: Weights, machine: Machine, dtype: str, figures: Figures, *, quick: bool
) -> dict[Part, Callable[[], None]]:
    """Return the measurements of a shape; the judged shape is measured in every precision."""
    is_judged, place = weights.name == JUDGED, weights.place

    def measure_identity() -> None:
        figures.checks += check_identity(weights)

    def measure_passes() -> None:
        def add(sizes: Sequence[tuple[int, int]], **settings: Any) -> None:
            place.tidy()
            settings = {"dtype": dtype, **settings}
            figures.points += passes.measure_passes(weights, machine, sizes, **settings)

        some = passes.QUICK if quick else passes.FEW
        add(passes.QUICK if quick else passes.ALL)
        if is_judged:
            for kind in ("bfloat16", "float32"):
                add(some, dtype=kind)
            for cache in CROSS_CACHES:
                add(some, cross_cache=cache)
            add(passes.QUICK if quick else passes.FALLBACK, is_fallback=True)

    def measure_encoding() -> None:
        batches = encoding.QUICK if quick else encoding.BATCHES
        figures.encodings += encoding.measure_encoding(weights, batches, dtype=dtype)

    def measure_kernels() -> None:
        sizes = kernels.QUICK if quick else kernels.SIZES
        figures.kernels += kernels.measure_kernels(weights, machine, sizes, dtype=dtype)

    def measure_agreement() -> None:
        figures.agreements += agreement.measure_agreement(
            weights,
            agreement.ARMS if is_judged else agreement.ARMS[:4],
            num_windows=agreement.QUICK_WINDOWS if quick else agreement.NUM_WINDOWS,
            num_tokens=agreement.QUICK_TOKENS if quick else agreement.NUM_TOKENS,
        )

    measured = {Part.IDENTITY: measure_identity} if weights.name in IDENTICAL else {}
    measured |= {Part.PASSES: measure_passes, Part.ENCODING: measure_encoding}
    measured |= {Part.KERNELS: measure_kernels} if is_judged else {}
    return measured | {Part.AGREEMENT: measure_agreement}


def _described(place: Place, machine: Machine) -> str:
    """Describe the device and its measured speeds."""
    name = torch.cuda.get_device_name(place.device) if place.is_gpu else "a CPU, narrow shapes"
    speeds = ", ".join(f"{ops / 1e12:.3g} Top/s in {dtype}" for dtype, ops in machine.ops_per_s.items())
    return f"{name}: copies {machine.bytes_per_s / 1e9:.0f} GB/s, multiplies {speeds}"


if __name__ == "__main__":
    typer.run(gpu)
