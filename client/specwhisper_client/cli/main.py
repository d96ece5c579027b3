"""The command line ``specwhisper``: its commands and connection options."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specwhisper.errors import SpecWhisperError
from specwhisper.extras import offers
from specwhisper.observe.tracing import configure_tracing
from specwhisper.rpc.channels import client_credentials
from specwhisper.settings.command_line import Version
from specwhisper_client.cli import listening
from specwhisper_client.cli.arguments import TOKEN_VARIABLE
from specwhisper_client.cli.health import show_health
from specwhisper_client.cli.jobs import imported, report
from specwhisper_client.cli.models_command import app as models
from specwhisper_client.cli.openai_flags import OpenAICommand
from specwhisper_client.cli.transcribe_command import transcribe
from specwhisper_client.cli.tuning.command import tune
from specwhisper_client.servers import DEFAULT_SERVER

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich cuts off long option names
    context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
)


def main() -> None:
    """Run the command line."""
    configure_tracing("specwhisper-client")
    try:
        app()
    except SpecWhisperError as error:
        sys.exit(report(error, Console(stderr=True)))


@app.callback()
def specwhisper(
    context: typer.Context,
    use_ssl: Annotated[bool, typer.Option("--use-ssl", help="Encrypted connection to the server.")] = False,
    ssl_root_cert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CA bundle (PEM) that verifies the server's certificate. Default: gRPC's own.",
        ),
    ] = None,
    ssl_client_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Client certificate (PEM).")
    ] = None,
    ssl_client_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key of the client certificate (PEM).")
    ] = None,
    ssl_server_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name in the server's certificate. Default: the host of its address."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"File with the server's token. Default: ${TOKEN_VARIABLE}."),
    ] = None,
    version: Version = False,
) -> None:
    """Transcribe speech with a small draft and a large target model.

    Encryption and token are set before the command: specwhisper --use-ssl transcribe FILE.
    """
    context.obj = client_credentials(
        use_ssl,
        ssl_root_cert,
        ssl_client_cert,
        ssl_client_key,
        ssl_server_name,
        token_file,
        variable=TOKEN_VARIABLE,
    )


app.command(cls=OpenAICommand)(transcribe)
app.command("listen")(listening.command)
app.command()(tune)
app.add_typer(models, name="models")


@app.command()
def health(
    context: typer.Context,
    server: Annotated[
        str,
        typer.Argument(metavar="HOST:PORT", help="Address of a draft or target server, or URL of a gateway."),
    ] = DEFAULT_SERVER,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Longest wait for the answer.")
    ] = 5.0,
) -> None:
    """Check whether a server takes calls; the exit status is 1 if it does not."""
    console, errors = Console(), Console(stderr=True)
    if not asyncio.run(show_health(server, console, errors, context.obj, timeout_s=timeout)):
        raise typer.Exit(1)


@app.command()
def serve(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Configuration of Ray Serve. Default: the demo's."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address of a Ray cluster. Default: Ray on this machine."),
    ] = None,
) -> None:
    """Run targets, draft servers and gateways under Ray, scaled by sessions."""
    imported("specwhisper_deploy.command", "serve", "server,gateway,serve").main(config, address)


for offer in offers("commands").values():
    offer.load()(app)


if __name__ == "__main__":
    main()
