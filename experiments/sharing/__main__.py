"""``python -m experiments.sharing``: memory and time of a distilled pair with one encoder, and with two."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from statistics import median
from typing import Annotated

import torch
import typer
from rich.table import Table
from transformers.utils import logging

from experiments.common.bench.options import Check, JsonFile, Quick, Seed
from experiments.common.bench.report import Bar, open_console, print_bars, write_json
from experiments.common.models.published import PUBLISHED
from experiments.common.servers.processes import Worker, available_cores
from experiments.sharing.pair import WAYS, Pair

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def sharing(
    shape: Annotated[str, typer.Option(help=f"One of {', '.join(PUBLISHED)}.")] = "small",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "bfloat16",
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Place a target of a published shape and its distilled draft, with one encoder and with two.

    Weights are random, which changes neither memory nor time. ``--quick`` takes base instead.
    """
    logging.set_verbosity_error()
    console = open_console()
    shape = "base" if quick else shape
    if shape not in PUBLISHED or dtype not in DTYPES:
        sys.exit(
            f"experiments.sharing: choose a shape from {', '.join(PUBLISHED)} and a dtype from "
            f"{', '.join(DTYPES)}."
        )
    figures = []
    for way in WAYS:
        worker = Worker(partial(Pair, shape, way, DTYPES[dtype], seed), cores=available_cores())
        figures.append(worker.call("measure"))
        worker.stop()
    table = Table("", "process, MB", "encode a window, s", title=f"{shape}, {dtype}, CPU")
    for one in figures:
        table.add_row(one.way, f"{one.resident_mb:.0f}", f"{median(one.encode_s):.2f}")
    console.print(table)
    alone, two, shared = figures
    extra = (shared.resident_mb - alone.resident_mb) / (two.resident_mb - alone.resident_mb)
    time_ratio = median(shared.encode_s) / median(two.encode_s)
    bars = [
        Bar("memory of a draft that shares over those of one that does not", extra, 0.7, f"{extra:.2f}"),
        Bar("time to encode a window, one encoder over two", time_ratio, 0.7, f"{time_ratio:.2f}"),
    ]
    if json is not None:
        write_json(
            json,
            models={"shape": shape, "dtype": dtype},
            figures={"rows": list(map(asdict, figures)), "bars": list(map(str, bars))},
        )
    raise SystemExit(0 if not check or print_bars(bars, console) else 1)


if __name__ == "__main__":
    typer.run(sharing)
