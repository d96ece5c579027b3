"""Assemble and run a target server: checkpoint, slots, engine thread, gRPC."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from specwhisper.engine.process import prepare_process, redirect_logs, return_freed_memory
from specwhisper.engine.target_engine import TargetEngine
from specwhisper.errors import OutOfMemory
from specwhisper.extras import needs_extra
from specwhisper.model.backend import is_out_of_memory
from specwhisper.model.backends import library_for
from specwhisper.model.checkpoints.checkpoint import Checkpoint, load_checkpoint
from specwhisper.model.model import Model, WhisperModel
from specwhisper.observe.tracing import configure_tracing
from specwhisper.rpc.serving import AddServicer, serve
from specwhisper.rpc.tokens import Leases
from specwhisper.wire.v1 import verification_pb2_grpc
from specwhisper_target_server.candidate_call import TargetMetrics
from specwhisper_target_server.config import TargetConfig
from specwhisper_target_server.service import VerificationService

logger = logging.getLogger(__name__)
SERVICE_NAME = "specwhisper.wire.v1.Verification"


@asynccontextmanager
async def running_service(
    config: TargetConfig,
    checkpoint: Checkpoint,
    model: Model | None = None,
    leases: Leases | None = None,
) -> AsyncIterator[VerificationService]:
    """Run the engine of a checkpoint, within the event loop that serves it.

    Parameters
    ----------
    model : transcribes; by default the checkpoint, placed in slots.
    leases : required to open a session, and granted by ``Locate``; ``None`` requires none.
    """
    metrics = TargetMetrics(checkpoint, config.device)
    failpoints = config.failpoints
    model = model or _placed(config, checkpoint)
    engine = TargetEngine(
        model if failpoints is None else failpoints.wrap_model(model, "verify"),
        limits=config.limits,
        max_width=config.max_width,
        max_num_batched_tokens=config.num_batched_tokens,
        latency_budget_ms=config.latency_budget_ms,
        max_new_tokens=checkpoint.max_new_tokens,
        observe=metrics.engine.observe,
    )
    metrics.engine.watch(engine.verifier)
    service = VerificationService(checkpoint, engine, config, metrics, leases, is_standby=config.standby)
    if failpoints is not None:
        failpoints.install_in_target(service, engine.thread)
    try:
        yield service
    finally:
        await engine.stop()


def _placed(config: TargetConfig, checkpoint: Checkpoint) -> WhisperModel:
    num_slots = config.limits.max_sessions
    try:
        model = WhisperModel(
            checkpoint,
            num_slots,
            device=config.device,
            device_map=config.device_map,
            offload_folder=config.offload_folder,
        )
        model.warm_up()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(
            f"There is no memory for '{checkpoint.name}' in {config.dtype} with {num_slots} "
            "slots: start with a lower --max-sessions, or a --dtype that takes less."
        ) from error
    logger.info(
        "model placed",
        extra={"model": checkpoint.name, "slots": model.num_slots, "mb_per_slot": model.bytes_per_slot / 1e6},
    )
    return model


@asynccontextmanager
async def loaded_service(
    config: TargetConfig, leases: Leases | None = None
) -> AsyncIterator[VerificationService]:
    configure_tracing("specwhisper-target-server")
    device = prepare_process(config.device, config.threads, config.cores)
    config = replace(config, device=device or config.device)
    checkpoint = load_checkpoint(config.model, revision=config.revision, dtype=config.dtype)
    redirect_logs(library_for(checkpoint, config.device, device_map=config.device_map))
    async with running_service(config, checkpoint, leases=leases) as service:
        checkpoint.weights.close()  # the model has its own copy, in its device's layout
        return_freed_memory()
        yield service


def self_test(config: TargetConfig) -> tuple[str, bool]:
    """Compare the GPU's kernels with PyTorch at the model's widths; return a table, and whether all agree."""
    device = prepare_process(config.device, config.threads, config.cores)
    checkpoint = load_checkpoint(config.model, revision=config.revision, dtype=config.dtype)
    with needs_extra("the self-test", "server"):
        from specwhisper.model.pytorch.self_test import table

    return table(checkpoint.sizes, config.dtype, device or config.device)


def services_of(service: VerificationService) -> Mapping[str, AddServicer]:
    return {SERVICE_NAME: partial(verification_pb2_grpc.add_VerificationServicer_to_server, service)}


async def run(config: TargetConfig) -> None:
    config.check_ports()
    async with loaded_service(config) as service:
        await serve(
            services_of(service),
            config,
            on_drain=service.announce_drain,
            metrics=service.metrics,
            check_health=service.check_health,
        )
