"""The command line ``specwhisper evaluate``."""

from __future__ import annotations

import json as json_module
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from specwhisper.api.speculative import SpeculativeWhisper
from specwhisper.api.speculative_config import SpeculativeConfig
from specwhisper.errors import InvalidRequest, SpecWhisperError
from specwhisper.evaluation.references import Reference, from_dataset, from_folder
from specwhisper.evaluation.side_by_side import Arm, Comparison, compare
from specwhisper.types import DTYPES

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # as specwhisper itself has it
    context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
)


@app.command()
def evaluate(
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
    final_model: Annotated[
        str, typer.Option(metavar="MODEL", help="Target model: a name, a hub id or a folder.")
    ] = "large-v3",
    draft_model: Annotated[
        str, typer.Option(metavar="MODEL", help="Draft model: a name, a hub id or a folder.")
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
    gamma: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Draft tokens per block.")] = 5,
    adaptive_gamma: Annotated[
        bool, typer.Option("--adaptive-gamma", help="Draft length as each session measures it best.")
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
    timestamps: Annotated[bool, typer.Option(help="Decoding with timestamps.")] = True,
    json: Annotated[
        Path | None,
        typer.Option(dir_okay=False, metavar="FILE", help="File for all texts and figures, as JSON."),
    ] = None,
) -> None:
    """Compare a target alone with a pair: word error rate, time and acceptance.

    Recordings that cannot be decoded are left out and named; the exit status is 1 then.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # where PyTorch runs the models
    errors = Console(stderr=True)
    bad: list[str] = []
    try:
        if dtype not in DTYPES:
            raise InvalidRequest(f"There is no dtype '{dtype}': choose from {', '.join(DTYPES)}.")
        if json is not None and not json.absolute().parent.is_dir():
            raise InvalidRequest(f"Folder {json.parent} does not exist: make it, or name another for --json.")
        references = _references(folder, dataset, config, split, limit)
        pair = SpeculativeWhisper(
            draft_model,
            final_model,
            device,
            SpeculativeConfig(gamma=gamma, use_adaptive_gamma=adaptive_gamma),
            dtype=dtype,
            batch_size=batch_size,
        )
        with _progress(errors) as show:
            comparison = compare(
                pair,
                references,
                batch_size=batch_size,
                on_progress=show,
                on_bad=lambda reference, error: bad.append(f"{reference.name}: {error}"),
                language=language,
                timestamps=timestamps,
            )
    except SpecWhisperError as error:
        errors.print(f"error: {error}", style="red", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    for line in bad:
        errors.print(f"left out: {line}", style="red", highlight=False, soft_wrap=True, markup=False)
    if not comparison.references:
        errors.print("error: There was nothing to transcribe.", style="red")
        raise typer.Exit(1)
    Console().print(table_of(comparison, final_model, draft_model))
    if json is not None:
        document = json_module.dumps(facts(comparison) | {"left_out": bad}, ensure_ascii=False, indent=1)
        try:
            json.write_text(document + "\n", encoding="utf-8")
        except OSError as error:
            errors.print(f"error: {json} cannot be written: {error.strerror}.", style="red", highlight=False)
            raise typer.Exit(1) from None
    if bad:
        raise typer.Exit(1)


def table_of(comparison: Comparison, final_model: str, draft_model: str) -> Table:
    """Draw both arms."""
    count = len(comparison.references)
    recordings = f"{count} recording{'s' * (count != 1)}, {comparison.duration_s:.0f} s"
    table = Table(
        "",
        "WER",
        "CER",
        "time",
        "real-time factor",
        "accepted",
        "tokens per pass",
        title=f"{final_model} with {draft_model}: {recordings}",
        caption=f"{comparison.speed_up:.2f} times as fast; {comparison.num_identical} of {count} identical",
    )
    for arm in (comparison.standard, comparison.speculative):
        rates, counts = comparison.rates(arm), arm.statistics
        table.add_row(
            arm.name,
            f"{rates.wer:.2%}",
            f"{rates.cer:.2%}",
            f"{arm.elapsed_s:.1f} s",
            f"{arm.elapsed_s / comparison.duration_s:.3f}",
            f"{counts.acceptance_rate:.1%}" if counts.num_verified else "",
            f"{counts.tokens_per_forward:.2f}",
        )
    return table


def facts(comparison: Comparison) -> dict[str, object]:
    """Lay everything out for machines."""

    def arm_facts(arm: Arm) -> dict[str, object]:
        rates = comparison.rates(arm)
        return {
            "wer": rates.wer,
            "cer": rates.cer,
            "elapsed_s": arm.elapsed_s,
            "acceptance_rate": arm.statistics.acceptance_rate,
            "tokens_per_forward": arm.statistics.tokens_per_forward,
            "batch_seconds": arm.seconds,
            "texts": arm.texts,
        }

    return {
        "language": comparison.language,
        "duration_s": comparison.duration_s,
        "speed_up": comparison.speed_up,
        "num_identical": comparison.num_identical,
        "references": comparison.references,
        "standard": arm_facts(comparison.standard),
        "speculative": arm_facts(comparison.speculative),
    }


def _references(
    folder: Path | None, dataset: str | None, config: str | None, split: str, limit: int | None
) -> Iterator[Reference]:
    if (folder is None) == (dataset is None):
        raise InvalidRequest("Name either a folder or a dataset: --folder FOLDER or --dataset NAME.")
    if folder is not None:
        return islice(from_folder(folder), limit)
    return from_dataset(str(dataset), config, split, limit)


@contextmanager
def _progress(errors: Console) -> Iterator[Callable[[int], None]]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as progress:
        task = progress.add_task("transcribing")
        yield lambda done: progress.update(task, description=f"{done} recordings")
