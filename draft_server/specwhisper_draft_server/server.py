"""Assemble and run a draft server: draft model, link to targets, gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from torch import nn

from specwhisper.engine.local import LocalTranscriber, TargetEngine
from specwhisper.engine.process import check_device, prepare_process
from specwhisper.model.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.model import WhisperModel
from specwhisper.model.pytorch.checkpoint import load_encoder
from specwhisper.model.pytorch.sharing import load_encoders
from specwhisper.observe.metrics.engine import EngineMetrics
from specwhisper.observe.metrics.registry import Registry
from specwhisper.observe.tracing import configure_tracing
from specwhisper.rpc.serving import AddServicer, serve
from specwhisper.transcription.transcriber import TargetDescription, Transcriber
from specwhisper.types import DEFAULT_MAX_WIDTH, Limits, Mode
from specwhisper.wire.v1 import transcription_pb2_grpc
from specwhisper_draft_server.config import DraftConfig
from specwhisper_draft_server.drafts.drafting import Drafting
from specwhisper_draft_server.drafts.placement import PlaceDraft, pair_ids, place_draft
from specwhisper_draft_server.drafts.source import DraftSource
from specwhisper_draft_server.link.link import TargetLink
from specwhisper_draft_server.metrics import DraftMetrics
from specwhisper_draft_server.parity_check import ParityChecker
from specwhisper_draft_server.recognisers.drafting import RecogniserDrafting
from specwhisper_draft_server.recognisers.protocol import Recogniser, load_recogniser
from specwhisper_draft_server.riva import riva_services
from specwhisper_draft_server.service import TranscriptionService
from specwhisper_draft_server.voice_activity import load_voice_activity

SERVICE_NAME = "specwhisper.wire.v1.Transcription"


@asynccontextmanager
async def running_service(
    config: DraftConfig,
    checkpoint: Checkpoint | None,
    place: PlaceDraft | None = None,
    recogniser: Recogniser | None = None,
) -> AsyncIterator[TranscriptionService]:
    """Run the draft model and the link to targets.

    They run within the event loop that serves clients.

    Parameters
    ----------
    checkpoint : the draft model; ``None`` for a server without one.
    place : places the draft for a target's vocabulary; by default the checkpoint.
    recogniser : drafts in place of a Whisper model.
    """
    await load_voice_activity()
    target = _load_target(config)
    encoder, target_encoder = _load_encoders(config, checkpoint if place is None else None, target)
    draft = checkpoint or recogniser
    metrics = DraftMetrics(config, model=draft.name if draft is not None else "")
    transcriber = _transcriber(config, target, target_encoder, metrics)
    failpoints = config.failpoints
    drafting: DraftSource | None = None
    if checkpoint is not None:
        check_pair = partial(pair_ids, checkpoint) if place is None else lambda _: None
        place = place or partial(_place, checkpoint, encoder, config.num_slots)
        drafting = Drafting(
            checkpoint,
            place if failpoints is None else lambda to: failpoints.wrap_model(place(to), "draft"),
            drafts_next_window=config.next_window,
            timeout_s=config.draft_timeout_s,
            on_failure=metrics.fallbacks.inc,
            check_pair=check_pair,
        )
    elif recogniser is not None:
        drafting = RecogniserDrafting(
            recogniser, timeout_s=config.draft_timeout_s, on_failure=metrics.fallbacks.inc
        )
    if drafting is not None:
        metrics.watch_engine(drafting)
    parity = ParityChecker(config.parity_check_every, transcriber, metrics)
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


def _load_encoders(
    config: DraftConfig, draft: Checkpoint | None, target: Checkpoint | None
) -> tuple[nn.Module | None, nn.Module | None]:
    """Load the encoders of the models that run in this process; they may share one."""
    devices = {"draft_device": config.device, "target_device": config.target_device}
    if draft is not None and target is not None:
        return load_encoders(draft, target, config.max_sessions, **devices)
    return (
        None if draft is None else load_encoder(draft, config.device),
        None if target is None else load_encoder(target, config.target_device),
    )


def _place(
    checkpoint: Checkpoint, encoder: nn.Module | None, num_slots: int, target: TargetDescription
) -> WhisperModel:
    """Place the draft and warm it up; afterwards only the model has the weights."""
    model = place_draft(checkpoint, num_slots, target, encoder=encoder)
    model.warm_up(0)
    checkpoint.weights.close()  # last: placing is retried if anything fails
    return model


def _load_target(config: DraftConfig) -> Checkpoint | None:
    """Load the target's weights if it runs in this process."""
    if config.target_model is None:
        return None
    return load_checkpoint(
        config.target_model,
        revision=config.target_revision,
        dtype=config.target_dtype,
    )


def _transcriber(
    config: DraftConfig, target: Checkpoint | None, encoder: nn.Module | None, metrics: DraftMetrics
) -> Transcriber:
    """Return the link to the targets, not connected yet, or the local target."""
    if target is None:
        return TargetLink(
            *config.targets,
            credentials=config.target_credentials,
            compress_audio=config.compress_audio,
            connect_timeout_s=config.connect_timeout_s,
            resume_timeout_s=config.resume_timeout_s,
            metrics=metrics,
        )
    limits = Limits(max_sessions=config.max_sessions)
    model = WhisperModel(target, config.max_sessions, encoder=encoder)
    target.weights.close()  # the model has its own copy, in its device's layout
    model.warm_up(DEFAULT_MAX_WIDTH)
    registry = Registry("specwhisper_target", metrics.collected)
    registry.export_build(target.name, target.dtype, config.target_device)
    figures = EngineMetrics(registry)
    engine = TargetEngine(model, limits=limits, max_new_tokens=target.max_new_tokens, observe=figures.observe)
    figures.watch(engine.verifier)
    return LocalTranscriber(target, engine, figures.on_message)


def services_of(service: TranscriptionService, config: DraftConfig) -> Mapping[str, AddServicer]:
    """Return the gRPC services that one servicer offers, by name."""
    add = partial(transcription_pb2_grpc.add_TranscriptionServicer_to_server, service)
    return {SERVICE_NAME: add, **riva_services(service, config.riva)}


@asynccontextmanager
async def loaded_service(config: DraftConfig) -> AsyncIterator[TranscriptionService]:
    """Load the draft model, if the mode needs one, and run the service."""
    configure_tracing("specwhisper-draft-server")
    prepare_process(config.device, config.threads, config.cores)
    if config.target_model is not None:
        check_device(config.target_device, "--target-device")
    checkpoint = recogniser = None
    if config.mode is not Mode.TARGET_ONLY and config.draft_recogniser is not None:
        recogniser = load_recogniser(config.draft_recogniser, config.draft_model)
    elif config.mode is not Mode.TARGET_ONLY:
        checkpoint = load_checkpoint(config.draft_model, revision=config.revision, dtype=config.dtype)
    async with running_service(config, checkpoint, recogniser=recogniser) as service:
        yield service


async def run(config: DraftConfig) -> None:
    """Serve until a signal stops the process."""
    async with loaded_service(config) as service:
        await serve(
            services_of(service, config),
            config,
            metrics=service.metrics,
            check_health=service.check_health,
        )
