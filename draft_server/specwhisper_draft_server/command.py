"""``specwhisper-draft-server``: draft near the audio, let a target verify."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from specwhisper.cli import flags
from specwhisper.cli.command_lines import run_command
from specwhisper.cli.flags import MODEL_PANEL, SEEING_PANEL, SERVING_PANEL, TRUST_PANEL
from specwhisper.observe.failpoints import load_failpoints
from specwhisper.observe.logs import LogFormat, LogLevel, configure_logging
from specwhisper.rpc.channels import client_credentials
from specwhisper.rpc.serving import SHORT_CALLS, ServingOptions
from specwhisper.rpc.tokens import read_tokens
from specwhisper.types import Mode
from specwhisper_draft_server.config import DEFAULT_PORT, DEFAULT_TARGET, MAX_MESSAGE_BYTES, DraftConfig

DRAFTING = "Drafting"


def read_config(
    target: Annotated[
        str,
        typer.Option(
            rich_help_panel=DRAFTING,
            metavar="HOST:PORT,...",
            help="Target servers, or what leads to many; the emptiest takes a session.",
        ),
    ] = DEFAULT_TARGET,
    target_model: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=DRAFTING,
            metavar="MODEL",
            help="Run this target in the same process, instead of asking a target server.",
        ),
    ] = None,
    target_revision: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=DRAFTING, metavar="REVISION", help="Commit or tag of --target-model on the hub."
        ),
    ] = None,
    target_device: Annotated[
        str,
        typer.Option(rich_help_panel=DRAFTING, metavar="DEVICE", help="Where --target-model runs."),
    ] = "cpu",
    target_dtype: Annotated[
        str,
        typer.Option(
            rich_help_panel=DRAFTING,
            metavar="TYPE",
            help="Of --target-model: float32 (text as transformers), bfloat16, float16 or, on a CPU, int8.",
        ),
    ] = "float32",
    target_use_ssl: Annotated[
        bool,
        typer.Option("--target-use-ssl", rich_help_panel=TRUST_PANEL, help="Encrypt the way to targets."),
    ] = False,
    target_root_cert: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=TRUST_PANEL,
            metavar="FILE",
            help="Who must have signed the targets' certificates, PEM; default: gRPC's own list.",
        ),
    ] = None,
    target_client_cert: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=TRUST_PANEL, metavar="FILE", help="Certificate to show to targets, PEM."
        ),
    ] = None,
    target_client_key: Annotated[
        Path | None, typer.Option(rich_help_panel=TRUST_PANEL, metavar="FILE", help="Its key, PEM.")
    ] = None,
    target_server_name: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=TRUST_PANEL,
            metavar="NAME",
            help="What targets' certificates name, where that is not the host of their address.",
        ),
    ] = None,
    target_token_file: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=TRUST_PANEL,
            metavar="FILE",
            help="Token that targets know this server by; else $SPECWHISPER_TARGET_TOKEN.",
        ),
    ] = None,
    draft_model: Annotated[
        str,
        typer.Option(
            rich_help_panel=MODEL_PANEL,
            metavar="MODEL",
            help="demo-draft-tiny, demo-draft-distil, a Whisper size (tiny ...), a hub id or a folder.",
        ),
    ] = "demo-draft-tiny",
    revision: flags.Revision = None,
    device: flags.Device = "cpu",
    dtype: Annotated[
        str,
        typer.Option(
            rich_help_panel=MODEL_PANEL,
            metavar="TYPE",
            help="float32, bfloat16, float16 or, on a CPU, int8; never changes the text.",
        ),
    ] = "float32",
    mode: Annotated[
        Mode,
        typer.Option(
            rich_help_panel=DRAFTING,
            metavar="MODE",
            help="target-only, sync, pipelined or full; the text is the target's own in each.",
        ),
    ] = Mode.FULL,
    gamma: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            rich_help_panel=DRAFTING,
            metavar="N",
            help="Draft tokens per block; by default chosen for each session as it goes.",
        ),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=DRAFTING,
            metavar="N",
            help="Blocks the draft may be ahead (pipelined and full); by default chosen likewise.",
        ),
    ] = None,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=0.99,
            rich_help_panel=DRAFTING,
            metavar="P",
            help="Stop where all that is drafted is less likely right; 0: never; default: chosen likewise.",
        ),
    ] = None,
    next_window: Annotated[
        bool,
        typer.Option(
            rich_help_panel=DRAFTING,
            help="Draft a window before the target opens it, in a second slot for each session.",
        ),
    ] = True,
    compress_audio: Annotated[
        bool,
        typer.Option(
            "--compress-audio", rich_help_panel=DRAFTING, help="Send FLAC to the target instead of PCM."
        ),
    ] = False,
    connect_timeout: Annotated[
        float,
        typer.Option(
            min=0,
            rich_help_panel=DRAFTING,
            metavar="SECONDS",
            help="Seconds a session waits for a target that refuses connections.",
        ),
    ] = 5.0,
    resume_timeout: Annotated[
        float,
        typer.Option(
            min=0,
            rich_help_panel=DRAFTING,
            metavar="SECONDS",
            help="Seconds a session whose target is lost waits for another one.",
        ),
    ] = 60.0,
    draft_timeout: Annotated[
        float,
        typer.Option(
            rich_help_panel=DRAFTING,
            metavar="SECONDS",
            help="Longest time for the draft engine to place its model, open a session or take a step; "
            "after it, sessions run target-only.",
        ),
    ] = 15.0,
    riva: Annotated[
        bool | None,
        typer.Option(
            "--riva/--no-riva",
            rich_help_panel=SERVING_PANEL,
            help="Offer NVIDIA Riva's service too; by default where nvidia-riva-client is installed.",
        ),
    ] = None,
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
        int, typer.Option(min=1, rich_help_panel=SERVING_PANEL, metavar="N", help="Client sessions at once.")
    ] = 8,
    max_sessions_per_token: flags.MaxSessionsPerToken = None,
    session_timeout: flags.SessionTimeout = 86_400.0,
    idle_timeout: flags.IdleTimeout = 60.0,
    max_message_bytes: Annotated[
        int,
        typer.Option(
            min=65_536,
            rich_help_panel=SERVING_PANEL,
            metavar="BYTES",
            help="Largest message, so also the largest file for Recognize.",
        ),
    ] = MAX_MESSAGE_BYTES,
    threads: flags.Threads = None,
    cores: flags.Cores = None,
    drain_timeout: flags.DrainTimeout = 30.0,
    audit_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=SEEING_PANEL,
            metavar="N",
            help="Decode one recording in N again, by the target alone, and compare; default: none.",
        ),
    ] = None,
    metrics_port: flags.MetricsPort = None,
    metrics_host: flags.MetricsHost = "127.0.0.1",
    log_format: flags.LogFormatOption = LogFormat.AUTO,
    log_level: flags.LogLevelOption = LogLevel.INFO,
    version: flags.Version = False,
) -> DraftConfig:
    """Serve transcription to clients: draft with a small model, verify with the target.

    The transcript is, token for token, what the target alone would have written.
    """
    configure_logging(log_format, log_level)
    return DraftConfig(
        target=target,
        target_credentials=client_credentials(
            target_use_ssl,
            target_root_cert,
            target_client_cert,
            target_client_key,
            target_token_file,
            variable="SPECWHISPER_TARGET_TOKEN",
            server_name=target_server_name,
        ),
        target_model=target_model,
        target_revision=target_revision,
        target_device=target_device,
        target_dtype=target_dtype,
        draft_model=draft_model,
        revision=revision,
        device=device,
        dtype=dtype,
        threads=threads,
        cores=flags.parse_cores(cores),
        mode=mode,
        gamma=gamma,
        depth=depth,
        min_confidence=min_confidence,
        drafts_next_window=next_window,
        compress_audio=compress_audio,
        connect_timeout_s=connect_timeout,
        resume_timeout_s=resume_timeout,
        draft_timeout_s=draft_timeout,
        max_sessions=max_sessions,
        riva=riva,
        audit_every=audit_every,
        serving=ServingOptions(
            host=host,
            port=port,
            insecure=insecure,
            tls=flags.server_tls(
                grpc_use_ssl, grpc_use_ssl_mutual, grpc_server_cert, grpc_server_key, grpc_root_cert
            ),
            tokens=read_tokens(tokens_file),
            max_message_bytes=max_message_bytes,
            max_concurrent_streams=max_sessions + SHORT_CALLS,
            drain_timeout_s=drain_timeout,
            idle_timeout_s=idle_timeout,
            max_session_s=session_timeout,
            max_sessions_per_token=max_sessions_per_token,
            metrics_host=metrics_host,
            metrics_port=metrics_port,
            failpoints=load_failpoints(os.environ, "draft"),
        ),
    )


def serve(config: DraftConfig) -> None:
    """Serve until a signal."""
    # Heavy imports wait until the arguments are known to be good: --help answers at once.
    from specwhisper_draft_server.server import run

    asyncio.run(run(config))


def main() -> None:
    """Run the command line."""
    run_command("specwhisper-draft-server", read_config, serve)
