"""Put a draft server together: draft model, link to the target, gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import torch

from draft_server.config import DraftConfig
from draft_server.drafting import Drafting
from draft_server.link import TargetLink
from draft_server.service import TranscriptionService
from specwhisper.types import Mode
from specwhisper.whisper.checkpoint import Checkpoint, load_checkpoint
from specwhisper.wire.serving import serve
from specwhisper.wire.v1 import transcription_pb2_grpc

SERVICE_NAME = "specwhisper.wire.v1.Transcription"


@asynccontextmanager
async def running_service(
    config: DraftConfig, checkpoint: Checkpoint | None
) -> AsyncIterator[TranscriptionService]:
    """Keep link and draft model ready; inside the event loop that serves them."""
    link = TargetLink(config.target, compress_audio=config.compress_audio)
    drafting = Drafting(config, checkpoint) if checkpoint is not None else None
    try:
        yield TranscriptionService(config, link, drafting)
    finally:
        if drafting is not None:
            await drafting.stop()
        await link.close()


async def run(config: DraftConfig) -> None:
    """Load the draft model, unless nothing is ever drafted, and serve until a signal stops the process."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    checkpoint = None
    if config.mode is not Mode.TARGET_ONLY:
        checkpoint = await asyncio.to_thread(
            load_checkpoint,
            config.draft_model,
            revision=config.revision,
            dtype=getattr(torch, config.dtype),
            device=config.device,
        )
    async with running_service(config, checkpoint) as service:
        add = partial(transcription_pb2_grpc.add_TranscriptionServicer_to_server, service)
        await serve({SERVICE_NAME: add}, config.serving)
