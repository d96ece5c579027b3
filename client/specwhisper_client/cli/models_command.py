"""The command line ``specwhisper models``."""

from __future__ import annotations

import asyncio
import json as json_module
from typing import Annotated

import typer
from rich.console import Console

from specwhisper.rpc.channels import OPEN, Credentials
from specwhisper_client.api import TranscriptionClient
from specwhisper_client.cli.jobs import imported
from specwhisper_client.cli.tables import local_models_table, server_table

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def models(
    context: typer.Context,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,...",
            help="Addresses of draft servers, or locator:///HOST:PORT, which lists them: shows their models.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Models of this machine as JSON.")] = False,
) -> None:
    """List the models on this machine, or those of a server."""
    if context.invoked_subcommand is not None:
        return
    if server is not None:
        asyncio.run(show_server(server, Console(), context.obj))
        return
    local = imported("specwhisper.model.local", "models without --server", "draft")
    found = local.local_models()
    if json:
        print(json_module.dumps(found, indent=2))
    else:
        Console().print(local_models_table(found))
        Console().print(
            "\nlayers: encoder + decoder x width. Each can be a target, and a draft for any other; named are "
            "those that it likely helps: larger ones with about as many tokens.",
            highlight=False,
        )


async def show_server(server: str, console: Console, credentials: Credentials = OPEN) -> None:
    async with TranscriptionClient(server, credentials) as client:
        console.print(server_table(await client.get_model()))


@app.command()
def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of models: tiny.en, base.")],
) -> None:
    """Fetch models, so that their names work without a network from then on."""
    local = imported("specwhisper.model.local", "models get", "draft")
    for name in names:
        print(f"{name}: {local.fetch(name)}")
