"""The command line ``specwhisper evaluate``: its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from specwhisper.extras import needs_extra
from specwhisper.options import Padding, Task
from specwhisper.settings.choices import one_of
from specwhisper.speculation.draft_length import MAX_GAMMA
from specwhisper.types import DTYPES, SERVER_MODES, Mode
from specwhisper_client.cli.arguments import PaddingOption
from specwhisper_client.cli.grouped_options import Given, takes


@dataclass(frozen=True, kw_only=True)
class Source:
    folder: Annotated[
        Path | None,
        typer.Option(
            file_okay=False, metavar="FOLDER", help="Folder of recordings, each with its text beside it."
        ),
    ] = None
    dataset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Dataset of the Hugging Face hub, in place of a folder."),
    ] = None
    config: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Configuration of the dataset, for example a language."),
    ] = None
    split: Annotated[str, typer.Option(metavar="NAME", help="Split of the dataset.")] = "test"
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of recordings, the first ones. Default: all."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Models:
    final_model: Annotated[
        str, typer.Option(metavar="MODEL", help="Target model: a name, a hub id, a folder or a file.")
    ] = "large-v3"
    draft_model: Annotated[
        str, typer.Option(metavar="MODEL", help="Draft model: a name, a hub id, a folder or a file.")
    ] = "tiny"
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="Device of both models, or auto. Default: cuda, or cpu without a GPU.",
        ),
    ] = None
    dtype: Annotated[
        str, typer.Option(metavar="TYPE", help=f"Precision of both models: {', '.join(DTYPES)}.")
    ] = "float32"
    draft_dtype: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Precision of the draft, if another: it changes no text."),
    ] = None
    cut_windows: Annotated[
        bool,
        typer.Option("--cut-windows", help="Draft that encodes only the audio that a window has, on CPUs."),
    ] = False


@dataclass(frozen=True, kw_only=True)
class Decoding:
    language: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE",
            help="Code or name of the language. Default: the model's own, or the detected one.",
        ),
    ] = None
    task: Annotated[
        Task,
        typer.Option(
            metavar="TASK", help="Task: transcribe, or translate into English, in which the texts are then."
        ),
    ] = Task.TRANSCRIBE
    timestamps: Annotated[bool, typer.Option(help="Decoding with timestamps.")] = True
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Plain greedy decoding, without fallback and thresholds.")
    ] = False
    padding: PaddingOption = Padding.SILENCE


@dataclass(frozen=True, kw_only=True)
class Output:
    recordings: Annotated[bool, typer.Option(help="Table of every recording.")] = True
    json: Annotated[
        Path | None,
        typer.Option(dir_okay=False, metavar="FILE", help="File for all texts and figures, as JSON."),
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            metavar="FILE",
            help="Picture of acceptance and speed-up of each recording: a name ending with .png or .svg.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    source: Source
    server: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,...",
            help="Addresses of draft servers, or locator:///HOST:PORT, which lists them: compares a mode "
            "with target-only through them. Default: both models in this process.",
        ),
    ] = None
    mode: Annotated[
        Mode | None,
        typer.Option(
            parser=one_of(SERVER_MODES),
            metavar="MODE",
            help=f"With --server: {', '.join(SERVER_MODES[1:-1])} or {SERVER_MODES[-1]}. Default: its own.",
        ),
    ] = None
    models: Models
    gamma: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_GAMMA,
            metavar="N",
            help="Draft tokens per block. Default: 5; with --server, its own.",
        ),
    ] = None
    adaptive_gamma: Annotated[
        bool,
        typer.Option("--adaptive-gamma", help="Blocks end where the draft is unsure, whatever --gamma is."),
    ] = False
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Recordings that are transcribed at once.")
    ] = 1
    decoding: Decoding
    chunk_length_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Length of overlapping chunks that are decoded side by side, up to 30. Default: one window "
            "after the other.",
        ),
    ] = None
    stride_length_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Overlap of a chunk with each neighbour. Default: a sixth of the chunk."
        ),
    ] = None
    output: Output
    given: Given


@takes(EvaluateOptions)
def evaluate(context: typer.Context, options: EvaluateOptions) -> None:
    """Compare a target alone with a pair: word error rate, time and acceptance.

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
