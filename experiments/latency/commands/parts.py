"""``parts``: where the time of an utterance goes: encoder, forward passes and draft steps."""

from __future__ import annotations

import sys
from functools import partial
from statistics import fmean
from typing import Annotated

import typer
from rich.progress import track
from rich.table import Table

from experiments.common.audio.samples import load_samples
from experiments.common.bench.options import Draft, JsonFile, Quick, Seed, Target
from experiments.common.bench.report import open_console, write_json
from experiments.common.servers.processes import Worker
from experiments.latency.commands.sweep import SHORTEST, Recordings
from experiments.latency.costs import Timer
from experiments.latency.pair import Pair, cores_used, record_pair
from specwhisper.errors import SpecWhisperError

WIDTHS = (1, 17)  # tokens of a forward pass
DTYPES = ("float32", "int8")


def parts(
    target: Target = "demo-target",
    draft: Draft = "demo-draft-tiny",
    audio: Recordings = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is repeated.")] = 3,
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
) -> None:
    """Time the encoder and the forward passes of both models in each precision, on one core."""
    console = open_console()
    try:
        samples = load_samples(audio or SHORTEST)
        decoding = record_pair(Pair(target, draft), samples[:1]).decodings[0]
        arms = [(target, dtype, partial(Timer, target, dtype=dtype)) for dtype in DTYPES]
        arms += [(draft, dtype, partial(Timer, draft, dtype=dtype)) for dtype in DTYPES]
        cut = partial(Timer, draft, dtype="int8", cut_windows=True)
        arms.append((draft, "int8, cut windows", cut))
        workers = [Worker(build, cores=cores_used()["target"]) for _, _, build in arms]
        encode_ms: list[list[float]] = [[] for _ in arms]
        forward_ms: list[list[list[float]]] = [[] for _ in arms]
        try:
            for _ in track(range(1 if quick else rounds), console=console, transient=True):
                for place, worker in enumerate(workers):
                    encode_ms[place].append(1e3 * fmean(worker.call("encode_s", samples).values()))
                    forward_s = worker.call("forward_s", samples[0], decoding, WIDTHS)
                    forward_ms[place].append([1e3 * each for each in forward_s])
        finally:
            for worker in workers:
                worker.stop()
    except SpecWhisperError as error:
        sys.exit(f"experiments.latency: {error}")
    found = [
        {
            "model": name,
            "precision": precision,
            "encode_ms": min(encode_ms[place]),
            "pass_ms": min(each[0] for each in forward_ms[place]),
            "wide_pass_ms": min(each[1] for each in forward_ms[place]),
        }
        for place, (name, precision, _) in enumerate(arms)
    ]
    table = Table("model", "precision", "a window, ms", "a pass, ms", f"of {WIDTHS[1]} tokens, ms")
    for row in found:
        times = (f"{row[name]:.1f}" for name in ("encode_ms", "pass_ms", "wide_pass_ms"))
        table.add_row(str(row["model"]), str(row["precision"]), *times)
    console.print(table)
    if json is not None:
        write_json(json, models=Pair(target, draft).facts(), figures={"parts": found})
