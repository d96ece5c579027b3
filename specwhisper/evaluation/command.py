"""The command line ``specwhisper evaluate``."""

from __future__ import annotations

import json as json_module
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from specwhisper.api.progress import ProgressBar
from specwhisper.api.speculative_config import SpeculativeConfig
from specwhisper.errors import InvalidRequest, MissingExtra, SpecWhisperError, UnsupportedOption
from specwhisper.evaluation.plot import check_plot, plot
from specwhisper.evaluation.references import Reference, from_dataset, from_folder
from specwhisper.evaluation.side_by_side import Comparison, Way, compare
from specwhisper.evaluation.tables import facts, recordings_table, table_of
from specwhisper.evaluation.ways import in_one_process, over_servers
from specwhisper.extras import MISSING_EXTRA_STATUS, needs_extra
from specwhisper.options import Padding, Task, options_from
from specwhisper.printable import escaped
from specwhisper.rpc.channels import OPEN
from specwhisper.settings.choices import one_of
from specwhisper.speculation.draft_length import MAX_GAMMA
from specwhisper.types import DTYPES, SERVER_MODES, Mode
from specwhisper_client.cli.arguments import PaddingOption

IN_ONE_PROCESS_ONLY = (
    *("final_model", "draft_model", "device", "dtype", "draft_dtype", "cut_windows", "adaptive_gamma"),
    *("chunk_length_s", "stride_length_s"),
)
OVER_SERVERS_ONLY = ("mode",)


app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # as specwhisper itself has it
    context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
)


@app.command()
def evaluate(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Option(
            file_okay=False, metavar="FOLDER", help="Folder of recordings, each with its text beside it."
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Dataset of the Hugging Face hub, in place of a folder."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Configuration of the dataset, for example a language."),
    ] = None,
    split: Annotated[str, typer.Option(metavar="NAME", help="Split of the dataset.")] = "test",
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Number of recordings, the first ones. Default: all."),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,...",
            help="Addresses of draft servers, or locator:///HOST:PORT, which lists them: compares a mode "
            "with target-only through them. Default: both models in this process.",
        ),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            parser=one_of(SERVER_MODES),
            metavar="MODE",
            help=f"With --server: {', '.join(SERVER_MODES[1:-1])} or {SERVER_MODES[-1]}. Default: its own.",
        ),
    ] = None,
    final_model: Annotated[
        str, typer.Option(metavar="MODEL", help="Target model: a name, a hub id, a folder or a file.")
    ] = "large-v3",
    draft_model: Annotated[
        str, typer.Option(metavar="MODEL", help="Draft model: a name, a hub id, a folder or a file.")
    ] = "tiny",
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="Device of both models, or auto. Default: cuda, or cpu without a GPU.",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="TYPE", help=f"Precision of both models: {', '.join(DTYPES)}.")
    ] = "float32",
    draft_dtype: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Precision of the draft, if another: it changes no text."),
    ] = None,
    cut_windows: Annotated[
        bool,
        typer.Option("--cut-windows", help="Draft that encodes only the audio that a window has, on CPUs."),
    ] = False,
    gamma: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_GAMMA,
            metavar="N",
            help="Draft tokens per block. Default: 5; with --server, its own.",
        ),
    ] = None,
    adaptive_gamma: Annotated[
        bool,
        typer.Option("--adaptive-gamma", help="Blocks end where the draft is unsure, whatever --gamma is."),
    ] = False,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Recordings that are transcribed at once.")
    ] = 1,
    language: Annotated[
        str | None,
        typer.Option(
            metavar="LANGUAGE",
            help="Code or name of the language. Default: the model's own, or the detected one.",
        ),
    ] = None,
    task: Annotated[
        Task,
        typer.Option(
            metavar="TASK", help="Task: transcribe, or translate into English, in which the texts are then."
        ),
    ] = Task.TRANSCRIBE,
    timestamps: Annotated[bool, typer.Option(help="Decoding with timestamps.")] = True,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Plain greedy decoding, without fallback and thresholds.")
    ] = False,
    padding: PaddingOption = Padding.SILENCE,
    chunk_length_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Length of overlapping chunks that are decoded side by side, up to 30. Default: one window "
            "after the other.",
        ),
    ] = None,
    stride_length_s: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Overlap of a chunk with each neighbour. Default: a sixth of the chunk."
        ),
    ] = None,
    recordings: Annotated[bool, typer.Option(help="Table of every recording.")] = True,
    json: Annotated[
        Path | None,
        typer.Option(dir_okay=False, metavar="FILE", help="File for all texts and figures, as JSON."),
    ] = None,
    plot_file: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            dir_okay=False,
            metavar="FILE",
            help="Picture of acceptance and speed-up of each recording: a name ending with .png or .svg.",
        ),
    ] = None,
) -> None:
    """Compare a target alone with a pair: word error rate, time and acceptance.

    Both models run in this process, or on servers with --server. Encryption and token of servers are set
    before the command: specwhisper --use-ssl evaluate --server HOST:PORT. Recordings that cannot be decoded
    are left out and named; the exit status is 1 then.
    """
    errors = Console(stderr=True)
    bad: list[str] = []
    try:
        _check(context, server)
        for file, option in ((json, "--json"), (plot_file, "--plot")):
            if file is not None and not file.absolute().parent.is_dir():
                raise InvalidRequest(
                    f"Folder {file.parent} does not exist: make it, or name another for {option}."
                )
        if plot_file is not None:
            check_plot(plot_file)
        references, count = _references(folder, dataset, config, split, limit)
        decoding: dict[str, Any] = {
            "language": language,
            "task": task,
            "timestamps": timestamps,
            "greedy": greedy,
            "padding": padding,
        }
        with _ways(context, server, decoding) as ways, ProgressBar(count) as bar:
            comparison = compare(
                ways,
                references,
                batch_size=batch_size,
                bar=bar,
                on_bad=lambda reference, error: bad.append(f"{reference.name}: {error}"),
            )
        _report(comparison, bad, errors, with_recordings=recordings)
        if comparison.references and json is not None:
            _write(json, facts(comparison) | {"task": task, "left_out": bad})
        if comparison.references and plot_file is not None:
            plot(comparison, plot_file)
    except SpecWhisperError as error:
        errors.print(escaped(f"error: {error}"), style="red", highlight=False, soft_wrap=True, markup=False)
        status = MISSING_EXTRA_STATUS if isinstance(error, MissingExtra) else 1
        raise typer.Exit(status) from None
    if bad or not comparison.references:
        raise typer.Exit(1)


def _check(context: typer.Context, server: str | None) -> None:
    """Refuse options of the other way to run the models, and an unknown precision."""
    for name in IN_ONE_PROCESS_ONLY if server is not None else OVER_SERVERS_ONLY:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            option = f"--{name.replace('_', '-')}"
            raise UnsupportedOption(
                f"The servers have their own models and decode window after window: leave {option} out."
                if server is not None
                else f"{option} is for servers: add --server HOST:PORT, or leave it out."
            )
    for dtype in (context.params["dtype"], context.params["draft_dtype"]):
        if dtype not in (*DTYPES, None):
            raise InvalidRequest(f"There is no dtype '{dtype}': choose from {', '.join(DTYPES)}.")


@contextmanager
def _ways(context: typer.Context, server: str | None, decoding: dict[str, Any]) -> Iterator[tuple[Way, Way]]:
    """Open what transcribes: servers, or models in this process."""
    asked = context.params
    if server is not None:
        options = options_from({}, decoding)
        credentials = context.obj or OPEN
        with over_servers(server, credentials, options, mode=asked["mode"], gamma=asked["gamma"]) as ways:
            yield ways
        return
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # where PyTorch runs the models
    with needs_extra("evaluate without --server", "server,evaluation"):
        from specwhisper.api.speculative import SpeculativeWhisper

    speculation = SpeculativeConfig(gamma=asked["gamma"] or 5, use_adaptive_gamma=asked["adaptive_gamma"])
    pair = SpeculativeWhisper(
        asked["draft_model"],
        asked["final_model"],
        asked["device"],
        speculation,
        dtype=asked["dtype"],
        draft_dtype=asked["draft_dtype"],
        batch_size=asked["batch_size"],
        cut_windows=asked["cut_windows"],
    )
    chunks = {name: asked[name] for name in ("chunk_length_s", "stride_length_s")}
    yield in_one_process(pair, **decoding, **chunks)


def _references(
    folder: Path | None, dataset: str | None, config: str | None, split: str, limit: int | None
) -> tuple[Iterator[Reference], int | None]:
    """Return the recordings and, where that is known, their number."""
    if (folder is None) == (dataset is None):
        raise InvalidRequest("Name either a folder or a dataset: --folder FOLDER or --dataset NAME.")
    if folder is not None:
        found = list(islice(from_folder(folder), limit))
        return iter(found), len(found)
    return from_dataset(str(dataset), config, split, limit), limit


def _report(comparison: Comparison, bad: list[str], errors: Console, *, with_recordings: bool) -> None:
    """Print the tables, and what was left out."""
    for line in bad:
        errors.print(escaped(f"left out: {line}"), style="red", highlight=False, soft_wrap=True, markup=False)
    if not comparison.references:
        errors.print("error: There was nothing to transcribe.", style="red")
        return
    console = Console()
    if with_recordings:
        console.print(recordings_table(comparison))
    console.print(table_of(comparison))


def _write(path: Path, document: dict[str, Any]) -> None:
    try:
        path.write_text(json_module.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}.") from error
