"""The command line ``specwhisper models``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from specwhisper.printable import print_table
from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper.settings.command_line import Program, takes
from specwhisper.validated import switch
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.cli.arguments import server_option
from specwhisper_client.cli.display import facts_table, pair_of
from specwhisper_client.cli.jobs import imported
from specwhisper_client.updates import ServerInfo

MAX_TARGET = 24  # characters in a line of the targets that a draft may serve

app = typer.Typer(rich_markup_mode=None)


@dataclass(frozen=True, kw_only=True)
class ModelsOptions:
    server: str | None = server_option(None, ": shows their models")
    json: bool = switch(False, "Models of this machine as JSON.", not_with=("server",))


@app.callback(invoke_without_command=True)
@takes(ModelsOptions)
def models(context: typer.Context, wanted: ModelsOptions) -> None:
    """List the models on this machine, or those of a server."""
    if context.invoked_subcommand is not None:
        return
    if wanted.server is not None:
        asyncio.run(show_server(wanted.server, Console(), context.obj))
        return
    local = imported("specwhisper.model.local", "models without --server", "draft")
    found = local.local_models()
    if wanted.json:
        print(json.dumps(found, indent=2))
    elif not found:
        print("No models found on this machine. Fetch some with: specwhisper models get tiny.en base")
    else:
        print_table(
            Console(),
            local_models_table(found),
            "\nlayers: encoder + decoder x width. Each can be a target, and a draft for any other; named are "
            "those that it likely helps: larger ones with about as many tokens.",
        )


async def show_server(server: str, console: Console, credentials: Credentials = OPEN) -> None:
    async with TranscriptionClient(server, credentials) as client:
        print_table(console, server_table(await client.get_model()))


@app.command(cls=Program)
def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names of models: tiny.en, base.")],
) -> None:
    """Fetch models. Their names work without a network from then on."""
    local = imported("specwhisper.model.local", "models get", "draft")
    for name in names:
        print(f"{name}: {local.fetch(name)}")


def server_table(info: ServerInfo) -> Table:
    return facts_table(
        {
            "model": pair_of(info.model),
            "weights": info.model.target_weights_digest,
            "languages": ", ".join(info.languages),
            "sessions": f"{info.max_sessions} at once",
            "version": info.software_version,
        }
    )


def local_models_table(models: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("model", overflow="fold")
    table.add_column("format", no_wrap=True)
    table.add_column("MB", justify="right", no_wrap=True)
    table.add_column("layers", no_wrap=True)
    table.add_column("drafts for", overflow="fold", max_width=MAX_TARGET)
    english_only = {model["name"] for model in models if model["english_only"]}
    for model in models:
        in_english = {*model["drafts_for"]} - english_only if model["english_only"] else ()
        shape = "{encoder_layers} + {decoder_layers} x {width}".format_map(model) if model["width"] else ""
        table.add_row(
            escape(model["name"]),
            model["format"] + (", quantised" if model["quantised"] else ""),
            f"{model['bytes'] / 1e6:.0f}",
            shape,
            escape("\n".join(name + " in English" * (name in in_english) for name in model["drafts_for"])),
        )
    return table
