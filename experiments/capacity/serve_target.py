"""``python -m experiments.capacity.serve_target``: a target server that counts its own work."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from experiments.capacity.models import Measured
from experiments.capacity.usage import Meter
from experiments.common.replay.options import Dtype, MaxSessions
from specwhisper.engine.process import prepare_process
from specwhisper.errors import SpecWhisperError
from specwhisper.observe.logs import LogFormat, LogLevel, configure_logging
from specwhisper.rpc.serving import serve
from specwhisper.types import Limits
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_target_server.config import TargetConfig
from specwhisper_target_server.server import SERVICE_NAME, running_service

TRACE_FILE = typer.Option(exists=True, dir_okay=False, help="Recorded trace of the target's text.")


def serve_target(
    shape: Annotated[str, typer.Option(help="Shape whose cost is measured: demo, or a published shape.")],
    trace: Annotated[Path, TRACE_FILE],
    meter: Annotated[Path, typer.Option(dir_okay=False, help="File of the counters.")],
    max_sessions: MaxSessions = 8,
    dtype: Dtype = "float32",
    decoding_only: Annotated[
        bool, typer.Option("--decoding-only", help="Encode only the first window of each slot.")
    ] = False,
    port: int = 0,
    threads: int | None = None,
    log_format: LogFormat = LogFormat.AUTO,
    log_level: LogLevel = LogLevel.INFO,
) -> None:
    """Serve the demo target, or another shape with its text, and count its work."""
    configure_logging(log_format, log_level)
    try:
        config = TargetConfig(
            threads=threads,
            limits=Limits(max_sessions=max_sessions),
            port=port,
            drain_timeout_s=1.0,
        )
        asyncio.run(_run(config, Measured(shape, dtype, trace, decoding_only), Meter.at(meter)))
    except SpecWhisperError as error:
        sys.exit(f"serve_target: {error}")


async def _run(config: TargetConfig, measured: Measured, meter: Meter) -> None:
    prepare_process(config.device, config.threads, config.cores)
    meter.own()
    checkpoint, model = measured.target(config.limits.max_sessions, meter)
    async with running_service(config, checkpoint, model) as service:
        add = partial(verification_pb2_grpc.add_VerificationServicer_to_server, service)
        await serve({SERVICE_NAME: add}, config, on_drain=service.announce_drain)


if __name__ == "__main__":
    typer.run(serve_target)
