"""The command line ``specwhisper``: its commands and connection options."""

from __future__ import annotations

import asyncio
import math
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import grpc.aio
import typer
from rich.console import Console
from typer.core import TyperGroup

from specwhisper.errors import SpecWhisperError, TargetUnavailable
from specwhisper.extras import needs_extra, offers
from specwhisper.observe.tracing import configure_tracing
from specwhisper.rpc.addresses import to_addresses
from specwhisper.rpc.channels import OPEN, ClientFlags, Credentials, open_channel
from specwhisper.rpc.tls import ClientTls, http_connection
from specwhisper.settings.command_line import VERSION, OneSentence, Program, takes
from specwhisper.settings.setting import Part
from specwhisper.validated import number, option
from specwhisper.wire.status import error_from_rpc
from specwhisper_client.cli import listening
from specwhisper_client.cli.jobs import TOKEN_VARIABLE, imported, report
from specwhisper_client.cli.models_command import app as models
from specwhisper_client.cli.transcribe_command import OpenAICommand, transcribe
from specwhisper_client.cli.tune_command import tune
from specwhisper_client.servers import DEFAULT_SERVER

GATEWAYS = ("http://", "https://")


class Commands(OneSentence, TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return list(super().parse_args(ctx, args or ["--help"]))

    def report(self, error: SpecWhisperError | str) -> None:
        report(error, Console(stderr=True))


app = typer.Typer(
    cls=Commands,
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


async def is_serving(server: str, credentials: Credentials = OPEN, *, timeout_s: float = 5.0) -> bool:
    """Return whether a server (``HOST:PORT``) or a gateway (its URL) takes calls.

    A server that stops takes none.

    Raises :class:`TargetUnavailable` if no server answers in time.
    """
    if server.startswith(GATEWAYS):
        return await asyncio.to_thread(_gateway_is_serving, server, credentials, timeout_s)
    with needs_extra("The health of a server", "draft"):
        from grpc_health.v1 import health_pb2, health_pb2_grpc
    async with open_channel(server, credentials) as channel:
        try:
            reply = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=timeout_s
            )
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, server) from error
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def _gateway_is_serving(url: str, credentials: Credentials, timeout_s: float) -> bool:
    try:
        parts = urlsplit(url)
        tls = None if parts.scheme == "http" else credentials.tls or ClientTls()
        with closing(http_connection(parts.hostname or "", parts.port, tls, timeout_s)) as connection:
            connection.request("GET", parts.path.rstrip("/") + "/health")
            return connection.getresponse().status == HTTPStatus.OK
    except OSError as error:
        raise TargetUnavailable(
            f"No gateway answers at {url} ({error.strerror or error}); is it running?"
        ) from error
    except (HTTPException, ValueError) as error:
        raise TargetUnavailable(
            f"The server at {url} does not speak HTTP: check that it is the address of a gateway."
        ) from error


@dataclass(frozen=True, kw_only=True)
class HealthOptions:
    server: str = option(
        DEFAULT_SERVER,
        "Address of a draft or target server, or URL of a gateway.",
        "HOST:PORT",
        read=lambda text: text if text.startswith(GATEWAYS) else to_addresses(text),
    )
    timeout: float = number(5.0, 0.1, math.inf, "Longest wait for the answer.", "SECONDS")


@app.command(cls=Program)
@takes(HealthOptions)
def health(context: typer.Context, wanted: HealthOptions) -> None:
    """Check whether a server takes calls. The exit status is 1 if it does not."""
    serves = asyncio.run(is_serving(wanted.server, context.obj, timeout_s=wanted.timeout))
    print("serving" if serves else "not serving")
    if not serves:
        raise typer.Exit(1)


@app.command(cls=Program)
def serve(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Configuration of Ray Serve. Default: the demo's."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address of a Ray cluster. Default: Ray on this machine."),
    ] = None,
) -> None:
    """Run all servers under Ray. Targets, draft servers and gateways are scaled by sessions."""
    imported("specwhisper_deploy.command", "serve", "server,gateway,serve").main(config, address)


for offer in offers("commands").values():
    offer.load()(app)
