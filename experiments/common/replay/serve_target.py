"""``python -m experiments.common.replay.serve_target``: a target server with a replay model."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from functools import partial

import typer

from experiments.common.replay.model import EncodeOnceModel, ReplayTarget
from experiments.common.replay.options import DecodingOnly, Dtype, MaxSessions, Shape, TraceFile
from experiments.common.replay.shapes import FREE, random_checkpoint, replay_name
from experiments.common.replay.trace import Trace
from specwhisper.engine.process import prepare_process
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.observe.logs import LogFormat, LogLevel, configure_logging
from specwhisper.rpc.serving import serve
from specwhisper.settings.shared import parse_cores
from specwhisper.types import Limits
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_target_server.config import TargetConfig
from specwhisper_target_server.server import SERVICE_NAME, running_service


def serve_target(
    shape: Shape,
    trace: TraceFile,
    max_sessions: MaxSessions = 8,
    device: str = "cpu",
    dtype: Dtype = "float32",
    decoding_only: DecodingOnly = False,
    host: str = "127.0.0.1",
    port: int = 0,
    threads: int | None = None,
    cores: str | None = None,
    log_format: LogFormat = LogFormat.AUTO,
    log_level: LogLevel = LogLevel.INFO,
) -> None:
    """Serve a trace's target at the cost of another shape."""
    configure_logging(log_format, log_level)
    try:
        config = TargetConfig(
            device=device,
            threads=threads,
            cores=parse_cores(cores),
            limits=Limits(max_sessions=max_sessions),
            host=host,
            port=port,
            insecure=True,
        )
        asyncio.run(_run(config, shape, dtype, Trace.load(trace), encode_once=decoding_only))
    except SpecWhisperError as error:
        sys.exit(f"serve_target: {error}")


async def _run(config: TargetConfig, shape: str, dtype: str, trace: Trace, *, encode_once: bool) -> None:
    prepare_process(config.device, config.threads, config.cores)
    slots = config.limits.max_sessions
    checkpoint = load_checkpoint(trace.target)
    checkpoint = replace(checkpoint, name=replay_name(shape, trace.target))
    forward = None
    if shape != FREE:
        random = random_checkpoint(shape, dtype=dtype)
        checkpoint = replace(checkpoint, dtype=random.dtype)
        forward = EncodeOnceModel(random, slots, encode_once=encode_once, device=config.device)
    model = ReplayTarget(
        trace, checkpoint.vocabulary, forward, num_slots=slots, tokenizer=checkpoint.tokenizer
    )
    async with running_service(config, checkpoint, model) as service:
        add = partial(verification_pb2_grpc.add_VerificationServicer_to_server, service)
        await serve({SERVICE_NAME: add}, config, on_drain=service.announce_drain)


if __name__ == "__main__":
    typer.run(serve_target)
