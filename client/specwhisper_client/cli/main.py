"""The command line ``specwhisper``: its commands and connection options."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from specwhisper.errors import SpecWhisperError
from specwhisper.extras import offers
from specwhisper.observe.tracing import configure_tracing
from specwhisper.rpc.channels import ClientFlags, Credentials
from specwhisper.settings.command_line import VERSION, takes
from specwhisper.settings.setting import Part
from specwhisper_client.cli import listening
from specwhisper_client.cli.health import is_serving
from specwhisper_client.cli.jobs import imported, report
from specwhisper_client.cli.models_command import app as models
from specwhisper_client.cli.openai_flags import OpenAICommand
from specwhisper_client.cli.transcribe_command import transcribe
from specwhisper_client.cli.tune_command import tune
from specwhisper_client.servers import DEFAULT_SERVER

TOKEN_VARIABLE = "SPECWHISPER_TOKEN"


class Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SpecWhisperError as error:
            raise typer.Exit(report(error, Console(stderr=True))) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich cuts off long option names
    context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
)


def main() -> None:
    configure_tracing("specwhisper-client")
    app()


CONNECTION = Part(
    kind=ClientFlags,
    then=partial(ClientFlags.credentials, variable=TOKEN_VARIABLE),
    renamed={name: f"ssl_{name}" for name in ("root_cert", "client_cert", "client_key", "server_name")},
    words={"peer": "the server", "variable": TOKEN_VARIABLE},
)


@app.callback()
@takes(CONNECTION, VERSION)
def specwhisper(context: typer.Context, credentials: Credentials) -> None:
    """Transcribe speech with a small draft and a large target model.

    Encryption and token are set before the command: specwhisper --use-ssl transcribe FILE.
    """
    context.obj = credentials


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
    serves = asyncio.run(is_serving(server, context.obj, timeout_s=timeout))
    print("serving" if serves else "not serving")
    if not serves:
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
