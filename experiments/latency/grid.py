"""Measure cells, interleaved, and keep each run in a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from experiments.common.audio.conditions import Condition, in_condition
from experiments.common.audio.samples import Sample
from experiments.common.bench.report import machine_facts, version_facts
from experiments.common.servers.processes import on_cores
from experiments.latency.cells import TARGET_ONLY, Cell, in_order
from experiments.latency.costs import measure_costs
from experiments.latency.networks.backends import Network, open_network
from experiments.latency.pair import Lab, Pair, cores_used, open_lab, record_pair
from experiments.latency.store import MAX_NETWORK_SHARE, Grid, Run, Store
from specwhisper.model.checkpoints.checkpoint import load_checkpoint

MAX_TRIES = 3  # then a run with a busier network is kept, but not counted
Spoken = Mapping[Condition, Sequence[Sample]]


@dataclass(frozen=True, slots=True)
class Request:
    """A measurement to take.

    Attributes
    ----------
    spoken : recordings as they sound in each condition; each has a name of its own.
    jitter_ms, loss : of the link, each way, at every round trip.
    """

    pair: Pair
    spoken: Spoken
    cells: Sequence[Cell]
    repeats: int
    seed: int
    network: str
    jitter_ms: float = 0.0
    loss: float = 0.0


def measure(request: Request, store: Store, console: Console) -> Grid:
    """Measure the runs that the store does not have yet."""
    machine, cores = machine_facts(), cores_used()  # before this thread is pinned to a core
    samples = [sample for each in request.spoken.values() for sample in each]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        trace = record_pair(request.pair, samples)
        trace.save(folder / "trace.json")
        costs = measure_costs(request.pair, samples, trace.decodings[0])
        with on_cores(cores["draft"]):
            network = stack.enter_context(open_network(request.network))
        console.print(f"Starting {', '.join(request.pair.facts().values())} ...", highlight=False)
        lab = stack.enter_context(open_lab(request.pair, network))
        lab.connect(0.0, seed=request.seed)
        texts = {sample.name: lab.transcribe(TARGET_ONLY, sample).tokens for sample in samples}
        vocabulary = load_checkpoint(request.pair.target).vocabulary
        lab.words = {name: vocabulary.decode(tokens).split() for name, tokens in texts.items()}
        header: dict[str, Any] = {
            "pair": request.pair.facts(),
            "samples": {str(condition): [s.name for s in each] for condition, each in request.spoken.items()},
            "network": {"name": request.network, "jitter_ms": request.jitter_ms, "loss": request.loss},
            "texts": {name: list(tokens) for name, tokens in texts.items()},
            "trace": (folder / "trace.json").read_text(),
            "costs": asdict(costs),
            "machine": machine,
            "versions": version_facts(),
        }
        found = store.begin(header)
        planned = in_order(request.cells, request.repeats, request.seed)
        left = [
            (repeat, cell, sample)
            for repeat, cell in planned
            for sample in request.spoken[cell.condition]
            if (repeat, cell, sample.name) not in found.done
        ]
        if found.runs:
            console.print(f"{len(found.done)} runs exist already; {len(left)} are left.", highlight=False)
        connected = None
        for repeat, cell, sample in track(left, "measuring", console=console, transient=True):
            if connected != (repeat, cell.rtt_ms):
                connected = repeat, cell.rtt_ms
                lab.connect(
                    cell.rtt_ms,
                    seed=request.seed + repeat,
                    jitter_ms=request.jitter_ms,
                    loss=request.loss,
                )
            facts = run_cell(lab, network, cell, sample, texts[sample.name])
            store.append(
                [Run(repeat, cell, sample.name, facts | {"commit": header["versions"]["specwhisper"]})]
            )
    return store.load()


def run_cell(lab: Lab, network: Network, cell: Cell, sample: Sample, tokens: Sequence[int]) -> dict[str, Any]:
    """Transcribe; repeat where the network used too much of a core. Return the last measurement.

    Parameters
    ----------
    tokens : the target's own text. One attempt with another text makes the run different.
    """
    is_same = True
    for _ in range(MAX_TRIES):
        cpu_s = network.cpu_s()
        timed = lab.transcribe(cell.arm, sample)
        share = (network.cpu_s() - cpu_s) / timed.wall_s
        is_same = is_same and timed.tokens == tuple(tokens)
        if share <= MAX_NETWORK_SHARE:
            break
    return {
        "decoding_s": timed.decoding_s,
        "wall_s": timed.wall_s,
        "num_tokens": timed.statistics.num_committed,
        "network_share": share,
        "is_same": is_same,
        "load": os.getloadavg()[0],
        "statistics": asdict(timed.statistics),
    }


def spoken_in(samples: Sequence[Sample], conditions: Sequence[Condition], seed: int) -> Spoken:
    """Return recordings as they sound in each condition."""
    return {
        condition: in_condition(samples, condition, np.random.default_rng(seed)) for condition in conditions
    }
