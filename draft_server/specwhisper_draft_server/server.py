"""Assemble and run a draft server: draft model, link to targets, gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from specwhisper.engine.process import check_device, prepare_process
from specwhisper.extras import offers
from specwhisper.observe.tracing import configure_tracing
from specwhisper.rpc.serving import AddServicer, serve
from specwhisper.types import Mode
from specwhisper.wire.v1 import transcription_pb2_grpc
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.draft_source import DraftSource, LoadDraft
from specwhisper_draft_server.link.link import TargetLink
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.parity_check import ParityChecker
from specwhisper_draft_server.service import TranscriptionService
from specwhisper_draft_server.transcriber import Transcriber
from specwhisper_draft_server.voice_activity import load_voice_activity

if TYPE_CHECKING:
    from specwhisper.model.checkpoints.checkpoint import Checkpoint
    from specwhisper_draft_server.drafting import PlaceDraft

SERVICE_NAME = "specwhisper.wire.v1.Transcription"


@asynccontextmanager
async def running_service(
    config: DraftConfig,
    checkpoint: Checkpoint | None,
    place: PlaceDraft | None = None,
    load_draft: LoadDraft | None = None,
) -> AsyncIterator[TranscriptionService]:
    """Run the draft model and the link to targets.

    They run within the event loop that serves clients.

    Parameters
    ----------
    checkpoint : the draft model; ``None`` for a server without one.
    place : places the draft for a target's vocabulary; by default the checkpoint.
    load_draft : loads a draft of another kind.
    """
    drafting: DraftSource | None = None
    if load_draft is not None:
        drafting = load_draft(lambda: metrics.failed_drafts.inc())
    await load_voice_activity()
    target: Checkpoint | None = None
    if checkpoint is not None or config.target_model is not None:
        from specwhisper_draft_server import whisper  # loads a runtime, which other servers don't need

        if config.target_model is not None:
            target = whisper.load_target(config, config.target_model)
        own = checkpoint if place is None else None
        encoder, target_encoder = whisper.load_encoders_of(config, own, target)
    draft = checkpoint or drafting
    metrics = DraftMetrics(config, model=draft.name if draft is not None else "")
    transcriber: Transcriber
    if target is None:
        transcriber = TargetLink(
            *config.targets,
            credentials=config.target_credentials,
            connect_timeout_s=config.connect_timeout_s,
            metrics=metrics,
        )
    else:
        transcriber = whisper.local_transcriber(config, target, target_encoder, metrics)
    failpoints = config.failpoints
    if checkpoint is not None:
        drafting = whisper.drafting_of(config, checkpoint, encoder, place, metrics.failed_drafts.inc)
    if drafting is not None:
        metrics.watch_engine(drafting.watchdog)
    parity = ParityChecker(config.parity_check_every, transcriber, metrics, config.resume_timeout_s)
    try:
        link = transcriber if failpoints is None else failpoints.wrap_transcriber(transcriber)
        service = TranscriptionService(config, link, drafting, metrics, parity)
        if failpoints is not None:
            failpoints.install_in_draft(service)
        yield service
    finally:
        await parity.stop()
        if drafting is not None:
            await drafting.stop()
        await transcriber.close()
        if config.speakers is not None:
            await config.speakers.close()


def services_of(service: TranscriptionService, config: DraftConfig) -> Mapping[str, AddServicer]:
    services = {SERVICE_NAME: partial(transcription_pb2_grpc.add_TranscriptionServicer_to_server, service)}
    for entry in offers("draft_services").values():
        services |= entry.load()(service, config)
    return services


@asynccontextmanager
async def loaded_service(config: DraftConfig) -> AsyncIterator[TranscriptionService]:
    configure_tracing("specwhisper-draft-server")
    has_draft = config.mode is not Mode.TARGET_ONLY
    load_draft = config.other_draft() if has_draft else None
    has_whisper = (has_draft and load_draft is None) or config.target_model is not None
    device = prepare_process(config.device if has_whisper else None, config.threads, config.cores)
    config = replace(config, device=device or config.device)
    if config.target_model is not None:
        config = replace(config, target_device=check_device(config.target_device, "--target-device"))
    checkpoint = None
    if has_draft and load_draft is None:
        from specwhisper_draft_server import whisper

        checkpoint = whisper.load_draft(config)
    async with running_service(config, checkpoint, load_draft=load_draft) as service:
        await service.prepare()
        yield service


async def run(config: DraftConfig) -> None:
    config.check_ports()
    async with loaded_service(config) as service:
        await serve(
            services_of(service, config),
            config,
            metrics=service.metrics,
            check_health=service.check_health,
        )
