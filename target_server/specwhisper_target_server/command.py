"""``specwhisper-target-server``: verify candidates and transcribe, on the machine with the large model."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from specwhisper.cli import flags
from specwhisper.cli.command_lines import run_command
from specwhisper.cli.flags import MODEL_PANEL, SERVING_PANEL
from specwhisper.errors import InvalidRequest
from specwhisper.observe.failpoints import load_failpoints
from specwhisper.observe.logs import LogFormat, LogLevel, configure_logging
from specwhisper.rpc.serving import SHORT_CALLS, ServingOptions
from specwhisper.rpc.tokens import read_tokens
from specwhisper.types import Limits
from specwhisper_target_server.config import DEFAULT_IDLE_S, DEFAULT_PORT, TargetConfig

DEFAULT_LIMITS = Limits()


def read_config(
    model: Annotated[
        str,
        typer.Option(
            rich_help_panel=MODEL_PANEL,
            metavar="MODEL",
            help="demo-target, a Whisper size (large-v3, turbo ...), a hub id or a folder.",
        ),
    ] = "demo-target",
    revision: flags.Revision = None,
    device: flags.Device = "cpu",
    dtype: Annotated[
        str,
        typer.Option(
            rich_help_panel=MODEL_PANEL,
            metavar="TYPE",
            help="float32 (text identical to transformers), bfloat16, float16 or, on a CPU, int8.",
        ),
    ] = "float32",
    host: flags.Host = "127.0.0.1",
    port: flags.Port = DEFAULT_PORT,
    insecure: flags.Insecure = False,
    grpc_use_ssl: flags.GrpcUseSsl = False,
    grpc_use_ssl_mutual: flags.GrpcUseSslMutual = False,
    grpc_server_cert: flags.ServerCert = None,
    grpc_server_key: flags.ServerKey = None,
    grpc_root_cert: flags.RootCert = None,
    tokens_file: flags.TokensFile = None,
    max_sessions: Annotated[
        int,
        typer.Option(
            min=1,
            rich_help_panel=SERVING_PANEL,
            metavar="N",
            help="Sessions at once; each takes a slot of memory.",
        ),
    ] = 8,
    max_sessions_per_token: flags.MaxSessionsPerToken = None,
    session_timeout: flags.SessionTimeout = 86_400.0,
    idle_timeout: flags.IdleTimeout = DEFAULT_IDLE_S,
    max_width: Annotated[
        int,
        typer.Option(
            min=1,
            rich_help_panel=MODEL_PANEL,
            metavar="N",
            help="Most candidates of one session in one forward pass.",
        ),
    ] = 16,
    max_num_batched_tokens: Annotated[
        int,
        typer.Option(
            min=1,
            rich_help_panel=SERVING_PANEL,
            metavar="N",
            help="Most tokens of all sessions in one forward pass; what is over waits for the next.",
        ),
    ] = 256,
    latency_budget: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=SERVING_PANEL,
            metavar="MS",
            help="Refuse sessions when answers would take longer than this on average; default: never.",
        ),
    ] = None,
    threads: flags.Threads = None,
    cores: flags.Cores = None,
    device_map: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=MODEL_PANEL,
            metavar="FILE",
            help='JSON file: decoder module to device, e.g. {"layers.0": 0}.',
        ),
    ] = None,
    offload_folder: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            rich_help_panel=MODEL_PANEL,
            metavar="FOLDER",
            help='Where "disk" entries of the device map go.',
        ),
    ] = None,
    cross_cache: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=MODEL_PANEL,
            metavar="TYPE",
            help="int8 or float8: on a GPU, keep what is heard in half the memory; rounds it.",
        ),
    ] = None,
    drain_timeout: flags.DrainTimeout = 30.0,
    metrics_port: flags.MetricsPort = None,
    metrics_host: flags.MetricsHost = "127.0.0.1",
    log_format: flags.LogFormatOption = LogFormat.AUTO,
    log_level: flags.LogLevelOption = LogLevel.INFO,
    version: flags.Version = False,
) -> TargetConfig:
    """Serve a Whisper model as the target of speculative decoding.

    Draft servers connect to it, stream audio and candidate tokens, and get back the text this model writes.
    """
    configure_logging(log_format, log_level)
    return TargetConfig(
        model=model,
        revision=revision,
        device=device,
        dtype=dtype,
        threads=threads,
        cores=flags.parse_cores(cores),
        max_width=max_width,
        max_num_batched_tokens=max_num_batched_tokens,
        latency_budget_ms=latency_budget,
        device_map=read_device_map(device_map) if device_map else None,
        offload_folder=str(offload_folder) if offload_folder else None,
        cross_cache=cross_cache,
        limits=Limits(max_sessions=max_sessions),
        serving=ServingOptions(
            host=host,
            port=port,
            insecure=insecure,
            tls=flags.server_tls(
                grpc_use_ssl, grpc_use_ssl_mutual, grpc_server_cert, grpc_server_key, grpc_root_cert
            ),
            tokens=read_tokens(tokens_file),
            max_message_bytes=DEFAULT_LIMITS.max_message_bytes,
            max_concurrent_streams=max_sessions + SHORT_CALLS,
            drain_timeout_s=drain_timeout,
            idle_timeout_s=idle_timeout,
            max_session_s=session_timeout,
            max_sessions_per_token=max_sessions_per_token,
            metrics_host=metrics_host,
            metrics_port=metrics_port,
            failpoints=load_failpoints(os.environ, "target"),
        ),
    )


def read_device_map(path: Path) -> dict[str, int | str]:
    """Read accelerate's map from decoder module to device."""
    try:
        device_map = json.loads(path.read_text())
    except OSError as error:
        raise InvalidRequest(f"--device-map {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InvalidRequest(f"--device-map {path} is not JSON: {error}.") from error
    if not (isinstance(device_map, dict) and all(isinstance(v, int | str) for v in device_map.values())):
        raise InvalidRequest(f'--device-map {path} must hold an object such as {{"layers.0": 0}}.')
    return device_map


def serve(config: TargetConfig) -> None:
    """Serve until a signal."""
    # Heavy imports wait until the arguments are known to be good: --help answers at once.
    from specwhisper_target_server.server import run

    asyncio.run(run(config))


def main() -> None:
    """Run the command line."""
    run_command("specwhisper-target-server", read_config, serve)
