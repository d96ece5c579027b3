"""``python -m experiments.gpu``: the engine on a GPU, every pass against its floor; it needs only torch."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from transformers.utils import logging

from experiments.common.args import Check, JsonFile, Quick, Seed
from experiments.common.report import open_console, print_bars, write_json
from experiments.gpu import MISSING, agreement, encoding, kernels, passes
from experiments.gpu.floor import measure_machine
from experiments.gpu.identity import check_identity
from experiments.gpu.service import measure_service
from experiments.gpu.summary import JUDGED, Figures, find_bars, print_figures
from experiments.gpu.texts import Texts
from experiments.gpu.weights import SHAPES, Place, Weights
from experiments.steps.floor import Machine
from specwhisper.errors import InvalidRequest, SpecWhisperError
from specwhisper.whisper.padded_slots import CROSS_CACHE_DTYPES
from specwhisper.whisper.process import check_device

IDENTICAL = ("tiny", "distil-large-v3")  # shapes that a CPU goes through soon
TOKENS_OF_A_WINDOW = 100


class Part(StrEnum):
    """What is measured."""

    IDENTITY = "identity"
    PASSES = "passes"
    ENCODING = "encoding"
    KERNELS = "kernels"
    AGREEMENT = "agreement"
    SERVICE = "service"


def gpu(
    shape: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(SHAPES)}; repeat for more. [default: all]")
    ] = None,
    part: Annotated[list[Part] | None, typer.Option(help="Repeat for more. [default: all]")] = None,
    device: Annotated[str, typer.Option(help="As torch names it; on a CPU, shapes are narrow.")] = "cuda",
    dtype: Annotated[str, typer.Option(help="Of passes, encoding and service.")] = "float16",
    acceptance: Annotated[
        float, typer.Option(min=0, max=1, help="How often the replayed draft goes on as its target does.")
    ] = 0.85,
    sessions: Annotated[str, typer.Option(metavar="N,N,...", help="Sessions of the service.")] = "1,16,64",
    period: Annotated[float, typer.Option(min=0.5, help="Seconds that a throughput is counted.")] = 8.0,
    processes: Annotated[int | None, typer.Option(help="That play the sessions. [default: by cores]")] = None,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Measure the engine with random weights of true shape, on a machine with a GPU and little else.

    Every pass is held against what the GPU must read and compute for it, at the speeds it reaches here. The
    service is a replay of the first shape: its passes cost what they cost, but texts and drafts are made up,
    so that its gain holds for the acceptance that is asked for. Exits with 1 if anything differs that must
    be the same.
    """
    logging.set_verbosity_error()
    torch.backends.cudnn.allow_tf32 = False  # what is called float32 is it
    console, figures = open_console(), Figures()
    parts, names = part or list(Part), shape or list(SHAPES)
    if MISSING:
        console.print(f"Not installed, and not needed here: {', '.join(MISSING)}.", highlight=False)
    try:
        if unknown := set(names) - set(SHAPES):
            raise InvalidRequest(f"There is no shape '{min(unknown)}': choose from {', '.join(SHAPES)}.")
        check_device(device, "--device")
        place = Place(torch.device(device), is_narrow=torch.device(device).type == "cpu", seed=seed)
        machine = measure_machine(place)
        console.print(_described(place, machine), highlight=False)
        for name in names:
            weights = Weights(name, place)
            measure(weights, machine, parts, dtype, figures, quick=quick, console=console)
            if Part.SERVICE in parts and name == names[0]:
                console.print(f"{name}: service", highlight=False)
                num_processes = min(8, (os.cpu_count() or 1) // 2) if processes is None else processes
                figures.carried += asyncio.run(
                    measure_service(
                        weights,
                        Texts(4, 20, acceptance, seed)
                        if quick
                        else Texts(64, TOKENS_OF_A_WINDOW, acceptance, seed),
                        [2] if quick else [int(number) for number in sessions.split(",")],
                        dtype=dtype,
                        period_s=0.5 if place.is_narrow else period,
                        num_processes=0 if place.is_narrow and processes is None else num_processes,
                    )
                )
            del weights
            place.tidy()
    except SpecWhisperError as error:
        sys.exit(f"experiments.gpu: {error}")
    print_figures(figures, console)
    bars = find_bars(figures)
    if json is not None:
        facts: dict[str, Any] = {"device": _described(place, machine), "speed": asdict(machine)}
        facts |= {"not_installed": MISSING, "bars": list(map(str, bars)), **asdict(figures)}
        write_json(json, models={"weights": "random", "dtype": dtype, "device": device}, figures=facts)
    broken = [f"{one.name}: {one.found}" for one in figures.checks if not one.holds]
    broken += [
        f"{one.mode}, {one.num_sessions} sessions: {one.num_different} texts differ {' '.join(one.failures)}"
        for one in figures.carried
        if one.num_different or one.failures
    ]
    all_hold = print_bars(bars, console) if check else True
    for line in broken:
        console.print(f"BROKEN: {line}", style="red", highlight=False, soft_wrap=True)
    sys.exit(0 if all_hold and not broken else 1)


def measure(
    weights: Weights,
    machine: Machine,
    parts: Collection[Part],
    dtype: str,
    figures: Figures,
    *,
    quick: bool,
    console: Console,
) -> None:
    """Measure one shape: everything of the one that is judged, the most important of others."""
    is_judged, place = weights.name == JUDGED, weights.place

    def begins(part: Part, *, is_wanted: bool = True) -> bool:
        if is_wanted and part in parts:
            console.print(f"{weights.name}: {part}", highlight=False)
        place.tidy()
        return is_wanted and part in parts

    if begins(Part.IDENTITY, is_wanted=weights.name in IDENTICAL):
        figures.checks += check_identity(weights)
    if begins(Part.PASSES):
        some = passes.QUICK if quick else passes.FEW
        every = passes.QUICK if quick else passes.ALL if is_judged else passes.FEW
        figures.points += passes.measure_passes(weights, machine, every, dtype=dtype)
        if is_judged:
            for kind in ("bfloat16", "float32"):
                place.tidy()
                figures.points += passes.measure_passes(weights, machine, some, dtype=kind)
            for cache in CROSS_CACHE_DTYPES:
                place.tidy()
                figures.points += passes.measure_passes(
                    weights, machine, some, dtype=dtype, cross_cache=cache
                )
            place.tidy()
            fallback = passes.QUICK if quick else passes.FALLBACK
            figures.points += passes.measure_passes(weights, machine, fallback, dtype=dtype, is_fallback=True)
    if begins(Part.ENCODING):
        batches = encoding.QUICK if quick else encoding.BATCHES
        figures.encodings += encoding.measure_encoding(weights, batches, dtype=dtype)
    if begins(Part.KERNELS, is_wanted=is_judged):
        sizes = kernels.QUICK if quick else kernels.SIZES
        figures.kernels += kernels.measure_kernels(weights, machine, sizes, dtype=dtype)
    if begins(Part.AGREEMENT):
        figures.agreements += agreement.measure_agreement(
            weights,
            agreement.ARMS if is_judged else agreement.ARMS[:4],
            num_windows=agreement.QUICK_WINDOWS if quick else agreement.NUM_WINDOWS,
            num_tokens=agreement.QUICK_TOKENS if quick else agreement.NUM_TOKENS,
        )


def _described(place: Place, machine: Machine) -> str:
    """Name the device and what it reaches."""
    name = torch.cuda.get_device_name(place.device) if place.is_gpu else "a CPU, narrow shapes"
    speeds = ", ".join(f"{ops / 1e12:.3g} Top/s in {dtype}" for dtype, ops in machine.ops_per_s.items())
    return f"{name}: copies {machine.bytes_per_s / 1e9:.0f} GB/s, multiplies {speeds}"


if __name__ == "__main__":
    typer.run(gpu)
