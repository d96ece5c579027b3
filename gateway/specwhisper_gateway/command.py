"""``specwhisper-gateway``: OpenAI's audio API in front of a draft server."""

from __future__ import annotations

import asyncio
import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from specwhisper.cli import flags
from specwhisper.cli.command_lines import run_command
from specwhisper.cli.flags import SEEING_PANEL, SERVING_PANEL, TRUST_PANEL
from specwhisper.observe.logs import LogFormat, LogLevel, configure_logging
from specwhisper.rpc.channels import client_credentials
from specwhisper_client.api import DEFAULT_SERVER
from specwhisper_gateway.config import (
    DEFAULT_PORT,
    MAX_AUDIO_S,
    MAX_CONNECTIONS,
    MAX_SESSIONS,
    MAX_UPLOAD_BYTES,
    GatewayConfig,
    keys,
)


def read_config(
    server: Annotated[
        str,
        typer.Option(
            rich_help_panel=SERVING_PANEL,
            metavar="HOST:PORT,...",
            help="Draft servers, or locator:///HOST:PORT that lists them; sessions are spread over all.",
        ),
    ] = DEFAULT_SERVER,
    server_use_ssl: Annotated[
        bool,
        typer.Option(
            "--server-use-ssl", rich_help_panel=TRUST_PANEL, help="Encrypt the way to the draft server."
        ),
    ] = False,
    server_root_cert: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=TRUST_PANEL,
            metavar="FILE",
            help="Who must have signed the draft server's certificate, PEM; default: gRPC's own list.",
        ),
    ] = None,
    server_name: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=TRUST_PANEL,
            metavar="NAME",
            help="What that certificate names, where it is not the host of --server.",
        ),
    ] = None,
    server_client_cert: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=TRUST_PANEL, metavar="FILE", help="Certificate to show to the draft server, PEM."
        ),
    ] = None,
    server_client_key: Annotated[
        Path | None, typer.Option(rich_help_panel=TRUST_PANEL, metavar="FILE", help="Its key, PEM.")
    ] = None,
    server_token_file: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=TRUST_PANEL,
            metavar="FILE",
            help="Token that the draft server knows this gateway by; else $SPECWHISPER_SERVER_TOKEN.",
        ),
    ] = None,
    host: flags.Host = "127.0.0.1",
    port: flags.Port = DEFAULT_PORT,
    insecure: flags.Insecure = False,
    http_use_ssl: Annotated[
        bool,
        typer.Option("--http-use-ssl", rich_help_panel=TRUST_PANEL, help="Encrypt every connection."),
    ] = False,
    http_use_ssl_mutual: Annotated[
        bool,
        typer.Option(
            "--http-use-ssl-mutual", rich_help_panel=TRUST_PANEL, help="Ask clients for certificates as well."
        ),
    ] = False,
    http_server_cert: flags.ServerCert = None,
    http_server_key: flags.ServerKey = None,
    http_root_cert: flags.RootCert = None,
    tokens_file: flags.TokensFile = None,
    max_upload_bytes: Annotated[
        int,
        typer.Option(
            min=1,
            rich_help_panel=SERVING_PANEL,
            metavar="BYTES",
            help="Largest request; default: OpenAI's.",
        ),
    ] = MAX_UPLOAD_BYTES,
    max_audio_seconds: Annotated[
        float,
        typer.Option(min=1, rich_help_panel=SERVING_PANEL, metavar="SECONDS", help="Longest recording."),
    ] = MAX_AUDIO_S,
    max_sessions: Annotated[
        int, typer.Option(min=1, rich_help_panel=SERVING_PANEL, metavar="N", help="Transcriptions at once.")
    ] = MAX_SESSIONS,
    max_sessions_per_token: Annotated[
        int | None,
        typer.Option(
            min=1, rich_help_panel=SERVING_PANEL, metavar="N", help="Of each caller; default: all of them."
        ),
    ] = None,
    session_timeout: flags.SessionTimeout = 86_400.0,
    max_connections: Annotated[
        int, typer.Option(min=1, rich_help_panel=SERVING_PANEL, metavar="N", help="Connections at once.")
    ] = MAX_CONNECTIONS,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=TRUST_PANEL,
            metavar="ORIGIN",
            help="Web origin whose pages may use the gateway, such as https://example.org; repeat for more.",
        ),
    ] = None,
    metrics: Annotated[
        bool, typer.Option(rich_help_panel=SEEING_PANEL, help="Serve /metrics for Prometheus.")
    ] = True,
    metrics_port: flags.MetricsPort = None,
    metrics_host: flags.MetricsHost = "127.0.0.1",
    drain_timeout: flags.DrainTimeout = 30.0,
    log_format: flags.LogFormatOption = LogFormat.AUTO,
    log_level: flags.LogLevelOption = LogLevel.INFO,
    version: flags.Version = False,
) -> GatewayConfig:
    """Serve OpenAI's audio API over HTTP: what it transcribes, a draft server does.

    Programs written for OpenAI's client work with it unchanged; /docs describes what each field does.

    Keys are in --tokens-file; a single one may stand in $SPECWHISPER_API_KEY instead. No flag takes one,
    because whoever has an account on this machine can read command lines.
    """
    configure_logging(log_format, log_level)
    if log_level is LogLevel.INFO:
        logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its own account of starting and stopping
    return GatewayConfig(
        server=server,
        server_credentials=client_credentials(
            server_use_ssl,
            server_root_cert,
            server_client_cert,
            server_client_key,
            server_token_file,
            variable="SPECWHISPER_SERVER_TOKEN",
            server_name=server_name,
        ),
        host=host,
        port=port,
        insecure=insecure,
        tls=flags.server_tls(
            http_use_ssl,
            http_use_ssl_mutual,
            http_server_cert,
            http_server_key,
            http_root_cert,
            protocol="http",
        ),
        tokens=keys(tokens_file),
        max_upload_bytes=max_upload_bytes,
        max_audio_s=max_audio_seconds,
        max_sessions=max_sessions,
        max_sessions_per_token=max_sessions_per_token,
        max_session_s=session_timeout,
        max_connections=max_connections,
        allow_origins=tuple(allow_origin or ()),
        metrics=metrics,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
        drain_timeout_s=drain_timeout,
    )


def serve(config: GatewayConfig) -> None:
    """Serve until a signal."""
    try:
        gateway = import_module("specwhisper_gateway.server")  # needs the extra, which a client has not
    except ModuleNotFoundError as error:
        needs = f"the gateway needs {error.name}: pip install 'specwhisper[gateway]'."
        sys.exit(f"specwhisper-gateway: {needs}")
    asyncio.run(gateway.run(config))


def main() -> None:
    """Run the command line."""
    run_command("specwhisper-gateway", read_config, serve)
