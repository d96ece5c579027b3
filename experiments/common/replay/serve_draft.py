"""``python -m experiments.common.replay.serve_draft``: a draft server with a replay model."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from experiments.common.replay.model import EncodeOnceModel, ReplayDraft
from experiments.common.replay.options import DecodingOnly, Dtype, MaxSessions, Shape, TraceFile
from experiments.common.replay.shapes import FREE, random_checkpoint, replay_name
from experiments.common.replay.trace import Trace
from specwhisper.engine.process import prepare_process
from specwhisper.errors import SpecWhisperError
from specwhisper.model.checkpoints.checkpoint import load_checkpoint
from specwhisper.observe.logs import LogFormat, LogLevel, configure_logging
from specwhisper.rpc.serving import serve
from specwhisper.settings.shared import parse_cores
from specwhisper.transcription.transcriber import TargetDescription
from specwhisper.types import Mode
from specwhisper.wire.v1 import transcription_pb2_grpc
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.server import SERVICE_NAME, running_service


def serve_draft(
    shape: Shape,
    trace: TraceFile,
    target: Annotated[str, typer.Option(metavar="HOST:PORT", help="Target server.")],
    mode: Annotated[Mode, typer.Option(help="Default mode of sessions.")] = Mode.FULL,
    gamma: Annotated[
        int | None, typer.Option(help="Draft tokens per block. [default: each session chooses]")
    ] = None,
    max_sessions: MaxSessions = 8,
    device: str = "cpu",
    dtype: Dtype = "float32",
    decoding_only: DecodingOnly = False,
    port: int = 0,
    threads: int | None = None,
    cores: str | None = None,
    log_format: LogFormat = LogFormat.AUTO,
    log_level: LogLevel = LogLevel.INFO,
) -> None:
    """Serve a trace's draft at the cost of another shape."""
    configure_logging(log_format, log_level)
    try:
        config = DraftConfig(
            target=target,
            device=device,
            threads=threads,
            cores=parse_cores(cores),
            mode=mode,
            gamma=gamma,
            max_sessions=max_sessions,
            port=port,
        )
        asyncio.run(_run(config, shape, dtype, Trace.load(trace), encode_once=decoding_only))
    except SpecWhisperError as error:
        sys.exit(f"serve_draft: {error}")


async def _run(config: DraftConfig, shape: str, dtype: str, trace: Trace, *, encode_once: bool) -> None:
    prepare_process(config.device, config.threads, config.cores)
    slots = config.max_sessions
    checkpoint = load_checkpoint(trace.draft)
    checkpoint = replace(checkpoint, name=replay_name(shape, trace.draft))
    forward = None
    if shape != FREE:
        random = random_checkpoint(shape, dtype=dtype)
        forward = EncodeOnceModel(random, slots, encode_once=encode_once, device=config.device)

    def place(description: TargetDescription) -> ReplayDraft:
        return ReplayDraft(trace, description.vocabulary, forward, num_slots=slots)

    async with running_service(config, checkpoint, place) as service:
        add = partial(transcription_pb2_grpc.add_TranscriptionServicer_to_server, service)
        await serve({SERVICE_NAME: add}, config)


if __name__ == "__main__":
    typer.run(serve_draft)
