"""``python -m experiments.sharing``: memory and time of a distilled pair with one encoder, and with two."""

from __future__ import annotations

import copy
import os
import sys
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
import typer
from rich.table import Table
from torch import nn
from transformers.utils import logging

from experiments.common.args import Check, JsonFile, Quick, Seed
from experiments.common.checkpoints import build_model
from experiments.common.processes import Worker, available_cores
from experiments.common.published import PUBLISHED
from experiments.common.report import Bar, open_console, print_bars, write_json
from specwhisper.audio.recording import Recording
from specwhisper.types import AudioChunk
from specwhisper.whisper.checkpoint import checkpoint_from_model
from specwhisper.whisper.model import WhisperModel
from specwhisper.whisper.pairing import draft_ids
from specwhisper.whisper.sharing import share_encoder

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
WAYS = ("target alone", "pair, two encoders", "pair, one encoder")
WINDOWS = 3


@dataclass(frozen=True, slots=True)
class Figures:
    """What a process holds once its models are placed, and how long both hear a window."""

    way: str
    weights_mb: float
    resident_mb: float
    encode_s: list[float]


class Pair:
    """Target and distilled draft (two decoder layers) of a published shape, in a process of their own."""

    def __init__(self, shape: str, way: str, dtype: torch.dtype, seed: int) -> None:
        model, tokens = build_model(replace(PUBLISHED[shape], seed=seed))
        model.to(dtype)
        target = checkpoint_from_model(model, tokens, name=shape)
        self.models = []
        if way != WAYS[0]:
            student = copy.deepcopy(model)
            layers = student.model.decoder.layers
            student.model.decoder.layers = nn.ModuleList([layers[0], layers[-1]])
            student.config.decoder_layers = 2
            draft = checkpoint_from_model(student, tokens, name="distil")
            del student
            if way == WAYS[2]:
                draft, target = share_encoder(draft, target, 1)
            ids = draft_ids(draft.vocabulary, target.vocabulary, draft_name="distil", target_name=shape)
            self.models.append(WhisperModel(draft, 1, vocabulary=target.vocabulary, ids=ids))
            del draft
        self.models.append(WhisperModel(target, 1))
        self._way = way

    def measure(self) -> Figures:
        """Encode windows with every model, as a transcription does."""
        seconds = []
        for number in range(WINDOWS):
            recording = Recording()
            tone = (torch.arange(16_000 * 2) * (number + 1) * 0.05).sin()
            recording.append(AudioChunk(0, (tone * 9_000).short().numpy().tobytes(), is_last=True))
            started_s = time.perf_counter()
            for model in self.models:
                model.encode(0, recording, 0)
            seconds.append(time.perf_counter() - started_s)
        return Figures(self._way, self._weights_mb(), resident_mb(), seconds)

    def _weights_mb(self) -> float:
        """Add up every weight once, however many models use it."""
        held = {}
        for model in self.models:
            for tensor in model.parameters():
                held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return sum(held.values()) / 1e6


def sharing(
    shape: Annotated[str, typer.Option(help=f"One of {', '.join(PUBLISHED)}.")] = "large-v2",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "bfloat16",
    quick: Quick = False,
    seed: Seed = 0,
    json: JsonFile = None,
    check: Check = False,
) -> None:
    """Place a target of a published shape and its distilled draft, with one encoder and with two.

    Weights are random, which changes neither memory nor time. ``--quick`` takes small instead.
    """
    logging.set_verbosity_error()
    console = open_console()
    shape = "small" if quick else shape
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
    table = Table("", "weights, MB", "process, MB", "encode a window, s", title=f"{shape}, {dtype}, CPU")
    for one in figures:
        table.add_row(
            one.way, f"{one.weights_mb:.0f}", f"{one.resident_mb:.0f}", f"{median(one.encode_s):.2f}"
        )
    console.print(table)
    alone, two, shared = figures
    extra = (shared.weights_mb - alone.weights_mb) / (two.weights_mb - alone.weights_mb)
    time_ratio = median(shared.encode_s) / median(two.encode_s)
    bars = [
        Bar("weights of a draft that shares over those of one that does not", extra, 0.7, f"{extra:.2f}"),
        Bar("time to hear a window, one encoder over two", time_ratio, 0.7, f"{time_ratio:.2f}"),
    ]
    if json is not None:
        write_json(
            json,
            models={"shape": shape, "dtype": dtype},
            figures={"rows": list(map(asdict, figures)), "bars": list(map(str, bars))},
        )
    raise SystemExit(0 if not check or print_bars(bars, console) else 1)


def resident_mb() -> float:
    """Read how much memory this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    typer.run(sharing)
