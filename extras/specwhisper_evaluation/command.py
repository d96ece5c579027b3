"""The command line ``specwhisper evaluate``: its options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from specwhisper.extras import needs_extra
from specwhisper.settings.command_line import takes
from specwhisper.settings.setting import part
from specwhisper.settings.shared import device_option
from specwhisper.speculation.draft_length import MAX_GAMMA
from specwhisper.types import DTYPES, SERVER_MODES, Mode
from specwhisper.validated import ABOVE_0, Rule, choice, number, option, switch, text, whole
from specwhisper_client.cli.arguments import IN_A_FOLDER, Temperatures, decoding_part, server_option

PICTURES = (".png", ".svg")


@dataclass(frozen=True, kw_only=True)
class Source:
    folder: Path | None = option(None, "Folder of recordings, each with its text beside it.", "FOLDER")
    dataset: str | None = text(None, "Dataset of the Hugging Face hub, in place of a folder.", "NAME")
    config: str | None = text(
        None, "Configuration of the dataset, for example a language.", "NAME", needs=("dataset",)
    )
    split: str = text("test", "Split of the dataset.", "NAME", needs=("dataset",))
    limit: int | None = whole(None, 1, math.inf, "Number of recordings, the first ones. Default: all.")


@dataclass(frozen=True, kw_only=True)
class Models:
    final_model: str = text("large-v3", "Target model: a name, a hub id, a folder or a file.", "MODEL")
    draft_model: str = text("tiny", "Draft model: a name, a hub id, a folder or a file.", "MODEL")
    device: str | None = device_option(
        "Device of both models, or auto. Default: cuda, or cpu without a GPU.", None
    )
    dtype: str = choice("float32", f"Precision of both models: {', '.join(DTYPES)}.", "TYPE", DTYPES)
    draft_dtype: str | None = choice(
        None, "Precision of the draft, if another: it changes no text.", "TYPE", DTYPES
    )
    cut_windows: bool = switch(False, "Let the draft encode only a window's audio, not 30 s, on CPUs.")


@dataclass(frozen=True, kw_only=True)
class Output:
    recordings: bool = switch(True, "Print a table of every recording.")
    json: Path | None = option(None, "File for all texts and figures, as JSON.", "FILE", rules=(IN_A_FOLDER,))
    plot: Path | None = option(
        None,
        "Picture of acceptance and speed-up of each recording: a name ending with .png or .svg.",
        "FILE",
        rules=(IN_A_FOLDER, Rule(lambda path: path.suffix.lower() in PICTURES, "write a .png or .svg file")),
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    source: Source = part(Source)
    server: str | None = server_option(
        None, ": compares a mode with target-only through them. Default: both models in this process"
    )
    mode: Mode | None = choice(
        None,
        f"With --server: {', '.join(SERVER_MODES[1:-1])} or {SERVER_MODES[-1]}. Default: its own.",
        "MODE",
        SERVER_MODES,
        needs=("server",),
    )
    models: Models = part(Models, not_with=("server",))
    gamma: int | None = whole(
        None, 1, MAX_GAMMA, "Draft tokens per block. Default: 5; with --server, its own."
    )
    adaptive_gamma: bool = switch(
        False, "End blocks where the draft is unsure, whatever --gamma is.", not_with=("server",)
    )
    batch_size: int = whole(1, 1, math.inf, "Recordings to transcribe at a time.")
    decoding: Mapping[str, Any] = decoding_part("language", "task", "timestamps", "padding")
    greedy: Mapping[str, Any] = part(Temperatures, dict, only_written=True, only=("greedy",))
    chunk_length_s: float | None = number(
        None,
        ABOVE_0,
        30,
        "Length of overlapping chunks that are decoded side by side, up to 30. Default: one window after the "
        "other.",
        "SECONDS",
        not_with=("server",),
    )
    stride_length_s: float | None = number(
        None,
        0,
        30,
        "Overlap of a chunk with each neighbour. Default: a sixth of the chunk.",
        "SECONDS",
        needs=("chunk_length_s",),
    )
    output: Output = part(Output)


@takes(EvaluateOptions)
def evaluate(context: typer.Context, options: EvaluateOptions) -> None:
    """Compare a target alone with a pair. The table has word error rates, times and acceptance.

    Both models run in this process, or on servers with --server. Encryption and token of servers are set
    before the command: specwhisper --use-ssl evaluate --server HOST:PORT. Recordings that cannot be decoded
    are left out and named; the exit status is 1 then.
    """
    with needs_extra("evaluate", "evaluation"):
        from specwhisper_evaluation.running import run
    if not run(options, context.obj):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    app.command()(evaluate)
