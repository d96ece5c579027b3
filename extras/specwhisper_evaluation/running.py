"""Compare as ``specwhisper evaluate`` asks: print tables, write figures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

from rich.console import Console

from specwhisper.api.progress import ProgressBar
from specwhisper.api.speculative_config import SpeculativeConfig
from specwhisper.errors import InvalidRequest
from specwhisper.extras import needs_extra
from specwhisper.options import Task, options_from
from specwhisper.printable import escaped, print_table
from specwhisper.rpc.channels import Credentials
from specwhisper.settings.command_line import reading
from specwhisper_client.cli.recordings import write
from specwhisper_evaluation.command import EvaluateOptions, Source
from specwhisper_evaluation.comparison import Method, compare
from specwhisper_evaluation.methods import in_one_process, over_servers
from specwhisper_evaluation.references import Reference, from_dataset, from_folder
from specwhisper_evaluation.tables import check_plot, facts, plot, recordings_table, table_of


def run(options: EvaluateOptions, credentials: Credentials) -> bool:
    """Compare, print and write; return whether every recording could be decoded."""
    output = options.output
    with reading():
        if output.plot is not None:
            check_plot()
        references, count = _references(options.source)
    left_out: list[str] = []
    with _methods(options, credentials) as methods, ProgressBar(count) as bar:
        comparison = compare(
            methods,
            references,
            batch_size=options.batch_size,
            bar=bar,
            on_undecodable=lambda reference, error: left_out.append(f"{reference.name}: {error}"),
        )
    errors = Console(stderr=True)
    for line in left_out:
        errors.print(escaped(f"left out: {line}"), style="red", highlight=False, soft_wrap=True, markup=False)
    if not comparison.references:
        raise InvalidRequest("There was nothing to transcribe.")
    console = Console()
    if output.recordings:
        print_table(console, recordings_table(comparison))
    print_table(console, table_of(comparison))
    if output.json is not None:
        task = options.decoding.get("task", Task.TRANSCRIBE)
        document = facts(comparison) | {"task": task, "left_out": left_out}
        write(output.json, json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    if output.plot is not None:
        plot(comparison, output.plot)
    return not left_out


def _references(source: Source) -> tuple[Iterator[Reference], int | None]:
    if source.folder is not None and source.dataset is None:
        found = list(islice(from_folder(source.folder), source.limit))
        return iter(found), len(found)
    if source.dataset is not None and source.folder is None:
        return from_dataset(source.dataset, source.config, source.split, source.limit), source.limit
    raise InvalidRequest("Name either a folder or a dataset: --folder FOLDER or --dataset NAME.")


def _methods(
    options: EvaluateOptions, credentials: Credentials
) -> AbstractContextManager[tuple[Method, Method]]:
    """Open what transcribes: servers, or models in this process."""
    decoding = {**options.decoding, **options.greedy}
    if options.server is not None:
        return over_servers(
            options.server, credentials, options_from({}, decoding), mode=options.mode, gamma=options.gamma
        )
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # where PyTorch runs the models
    with needs_extra("evaluate without --server", "server,evaluation"):
        from specwhisper.api.speculative import SpeculativeWhisper

    models = options.models
    pair = SpeculativeWhisper(
        models.draft_model,
        models.final_model,
        models.device,
        SpeculativeConfig(gamma=options.gamma or 5, use_adaptive_gamma=options.adaptive_gamma),
        dtype=models.dtype,
        draft_dtype=models.draft_dtype,
        batch_size=options.batch_size,
        cut_windows=models.cut_windows,
    )
    chunks = {"chunk_length_s": options.chunk_length_s, "stride_length_s": options.stride_length_s}
    return nullcontext(in_one_process(pair, **decoding, **chunks))
