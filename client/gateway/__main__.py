"""``specwhisper-gateway``: OpenAI's audio API in front of a draft server."""

from __future__ import annotations

import asyncio
import logging
import sys
from importlib import import_module
from typing import Annotated

import typer

from client.api import DEFAULT_SERVER
from client.gateway.config import DEFAULT_PORT, MAX_AUDIO_S, MAX_UPLOAD_BYTES, GatewayConfig
from specwhisper.wire import flags
from specwhisper.wire.command_lines import run_command
from specwhisper.wire.flags import SERVING_PANEL
from specwhisper.wire.logs import LogFormat, LogLevel, configure_logging


def read_config(
    server: Annotated[
        str, typer.Option(rich_help_panel=SERVING_PANEL, metavar="HOST:PORT", help="The draft server.")
    ] = DEFAULT_SERVER,
    host: flags.Host = "127.0.0.1",
    port: flags.Port = DEFAULT_PORT,
    insecure: flags.Insecure = False,
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
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="SPECWHISPER_API_KEY",
            show_envvar=True,
            rich_help_panel=SERVING_PANEL,
            metavar="KEY",
            help="What /v1 asks for as bearer token; in the environment other users cannot see it.",
        ),
    ] = None,
    metrics: Annotated[
        bool, typer.Option(rich_help_panel=SERVING_PANEL, help="Serve /metrics for Prometheus.")
    ] = True,
    drain_timeout: flags.DrainTimeout = 30.0,
    log_format: flags.LogFormatOption = LogFormat.AUTO,
    log_level: flags.LogLevelOption = LogLevel.INFO,
    version: flags.Version = False,
) -> GatewayConfig:
    """Serve OpenAI's audio API over HTTP: what it transcribes, a draft server does.

    Programs written for OpenAI's client work with it unchanged; /docs describes what each field does.
    """
    configure_logging(log_format, log_level)
    if log_level is not LogLevel.DEBUG:
        logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its own account of starting and stopping
    return GatewayConfig(
        server=server,
        host=host,
        port=port,
        insecure=insecure,
        max_upload_bytes=max_upload_bytes,
        max_audio_s=max_audio_seconds,
        api_key=api_key,
        metrics=metrics,
        drain_timeout_s=drain_timeout,
    )


def serve(config: GatewayConfig) -> None:
    """Serve until a signal."""
    try:
        gateway = import_module("client.gateway.server")  # needs the extra, which a client has not
    except ModuleNotFoundError as error:
        needs = f"the gateway needs {error.name}: pip install 'specwhisper[gateway]'."
        sys.exit(f"specwhisper-gateway: {needs}")
    asyncio.run(gateway.run(config))


def main() -> None:
    """Run the command line."""
    run_command("specwhisper-gateway", read_config, serve)


if __name__ == "__main__":
    main()
